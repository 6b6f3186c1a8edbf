"""Dropout masks with one bit per element."""

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.program import Mask
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import children, post_order, rebuilt, spanned, with_main


@listed("masks as bits", "ours", needs=("externalize_dropout",), excludes=("fuse",))
def masks_as_bits(program: RelayProgram) -> RelayProgram:
    """Takes dropout masks with one bit per element, and unpacks them where they are read.

    Before: Dropouts are products with masks of one byte per element.
    After: Masks are rows of bytes, which are shifted, cut to one bit, and reshaped.
    """
    masks = {m.name: m.in_bits() for m in program.masks if not (m.draw or m.bits)}
    main, instead, taken = program.main, {}, []
    readers = {c.handle.value: e for e in reversed(post_order(main.body)) for c in children(e)}
    for variable in main.params:
        taken.append(variable)
        if (mask := masks.get(variable.name_hint)) and variable.handle.value in readers:
            taken[-1] = relay.var(mask.name, shape=mask.input_shape, dtype=mask.input_dtype)
            span = readers[variable.handle.value].span
            instead[variable.handle.value] = spanned(_unpacked(taken[-1], mask), span, taken[-1:])
    if not instead:
        return program
    body = rebuilt([main.body], instead)[main.body.handle.value]
    held = tuple(masks.get(m.name, m) for m in program.masks)
    function = relay.Function(taken, body, main.ret_type, [], main.attrs)
    return with_main(replace(program, masks=held), function)


def _unpacked(rows: Any, mask: Mask) -> Any:
    """The mask's 0 and 1 in its own shape. Neighbouring elements are neighbours in memory, too
    (`Mask.bits`), so an inner loop shifts by one distance."""
    shifts = relay.const(np.arange(8, dtype="uint8").reshape(8, 1))
    bits = relay.bitwise_and(relay.right_shift(rows, shifts), relay.const(1, "uint8"))
    if mask.elements % 8:
        bits = relay.strided_slice(relay.reshape(bits, [-1]), [0], [mask.elements], [1])
    return relay.reshape(bits, mask.shape)
