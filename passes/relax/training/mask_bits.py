"""Dropout masks with one bit per element."""

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from relascope.passes.catalogue.entry import listed
from relascope.passes.program import Mask
from relascope.passes.relax.ir import rewrite
from relascope.passes.relax.ir.program import RelaxProgram


@listed("masks as bits", "ours", excludes=("legalize", "fuse_ops", "fuse_tir"))
def masks_as_bits(program: RelaxProgram) -> RelaxProgram:
    """Takes dropout masks with one bit per element, and unpacks them where they are read.

    Before: Dropouts are products with masks of one byte per element.
    After: Masks are rows of bytes, which are shifted, cut to one bit, and reshaped."""
    masks = {m.name: m.in_bits() for m in program.masks if not (m.draw or m.bits)}
    main, taken, instead = program.main, [], {}
    old = rewrite.bindings(main)
    readers = {v.__chandle__(): str(n.name) for n, e in reversed(old) for v in rewrite.variables(e)}
    maker = rewrite.Maker({str(v.name) for v, _ in old}, program.provenance)
    for variable in main.params:
        taken.append(variable)
        reader = readers.get(variable.__chandle__())
        if (mask := masks.get(str(variable.name))) and reader:
            taken[-1] = relax.Var(mask.name, relax.TensorType(mask.input_shape, mask.input_dtype))
            maker.origin = reader
            instead[variable.__chandle__()] = _unpacked(taken[-1], mask, maker)
    if not instead:
        return program
    rest = [(v, rewrite.substituted(value, instead)) for v, value in old]
    bound = rewrite.late([*maker.bound, *rest], {v.__chandle__() for v, _ in maker.bound})
    held = tuple(masks.get(m.name, m) for m in program.masks)
    returned = [rewrite.substituted(r, instead) for r in rewrite.results(main, old)]
    new = replace(program, masks=held, provenance=maker.provenance)
    return rewrite.with_main(new, rewrite.function_like(main, taken, bound, returned))


def _unpacked(rows: Any, mask: Mask, maker: rewrite.Maker) -> Any:
    """The mask's 0 and 1 in its own shape. Neighbouring elements are neighbours in memory, too
    (`Mask.bits`), so an inner loop shifts by one distance."""
    shifts = relax.const(np.arange(8, dtype="uint8").reshape(8, 1))
    bits = maker.emit(op.bitwise_and(op.right_shift(rows, shifts), relax.const(1, "uint8")))
    if mask.elements % 8:
        bits = maker.emit(op.reshape(bits, (-1,)))
        bits = op.strided_slice(bits, [0], [0], [mask.elements])
    return maker.emit(op.reshape(bits, mask.shape))
