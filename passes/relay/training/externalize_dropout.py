"""Dropouts as products with masks that are arguments of the program."""

from dataclasses import replace
from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.cuts.joint import MASK_PREFIX
from relascope.passes.relay.ir.program import Mask, RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order, rewrite, shape
from relascope.passes.relay.ir.spans import execution_order


@listed("dropout to mask inputs", "the tutorial's ExternalizeDropout", required=True)
def externalize_dropout(program: RelayProgram) -> RelayProgram:
    """Replaces each dropout by a product with a mask that PyTorch draws, in PyTorch's order.

    A mask holds 0 and 1 in a byte each, which the program scales to 0 and 1/(1-p), so that the
    product is PyTorch's result in train mode. The masks are in the order in which PyTorch executes
    the dropouts, so drawing them in that order uses the same random numbers as PyTorch. A dropout
    of rate 0 draws nothing and is removed.

    Before: Dropouts have the spans that the import gave them.
    After: Each dropout is a product with an argument.
    """
    found = [e for e in post_order(program.main.body) if op_name(e) == "nn.dropout"]
    drawn = sorted((c for c in found if float(c.attrs.rate) > 0), key=execution_order)
    taken = {p.name_hint for p in program.main.params}
    masks, variables = list(program.masks), {}
    for call in drawn:
        count = sum(not m.draw for m in masks)
        name = f"{MASK_PREFIX}{count}"
        while name in taken:
            name += "_"
        taken.add(name)
        kind = call.args[0].checked_type
        order = program.orders[count] if program.orders else ()
        about = float(call.attrs.rate), shape(call.args[0]), kind.dtype, order
        masks.append(Mask(name, *about, ordinal=execution_order(call)))
        drawn_as = relay.TensorType(kind.shape, masks[-1].input_dtype)
        variables[call.handle.value] = relay.var(name, drawn_as), masks[-1].scale

    def visit(call: Any, args: list[Any]) -> Any:
        kept, factor = args[0], relay.ones_like(args[0])
        if call.handle.value in variables:
            mask, scale = variables[call.handle.value]
            dtype = call.args[0].checked_type.dtype
            factor = relay.multiply(relay.cast(mask, dtype), relay.const(scale, dtype))
            kept = relay.multiply(args[0], factor)
        # The operator's second result is its own mask, which nothing imported from PyTorch reads.
        return relay.Tuple([kept, factor])

    if not found:
        return program
    rewritten = rewrite(program, {"nn.dropout": visit}, tuple(v for v, _ in variables.values()))
    return replace(rewritten, masks=tuple(sorted(masks, key=lambda m: m.ordinal)))
