"""One scalar whose gradient is the backward that PyTorch asks for."""

from dataclasses import replace
from functools import reduce

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.gradients import rooted, widest
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import with_main


@listed("grad_out rooted", "the tutorial", required=True, excludes=("bind", "root_grad_out"))
def root_grad_out(program: RelayProgram) -> RelayProgram:
    """Multiplies each output with its grad_out and sums, so that the gradient of this scalar is the
    backward that PyTorch asks for.

    The gradient of that scalar for an argument is the vector-Jacobian product with the grad_outs,
    which is PyTorch's backward. "main" returns (root, outputs...) afterwards; see `rooted`.

    Before: An output is of a floating type.
    After: main returns the root, then the outputs; each floating output has an argument
        grad_out_<index>.

    Raises:
        EngineError: kind "pass", if no output is floating.
    """
    main = program.main
    body = main.body
    outputs = list(body.fields) if isinstance(body, relay.Tuple) else [body]
    tuple_type = isinstance(main.ret_type, relay.TupleType)
    types = list(main.ret_type.fields) if tuple_type else [main.ret_type]
    if tuple_type and not isinstance(body, relay.Tuple):
        outputs = [relay.TupleGetItem(body, i) for i in range(len(types))]
    pairs = rooted(program, outputs, types, {p.name_hint for p in main.params}, relay.var)
    kinds = [v.type_annotation.dtype for _, v in pairs]
    wide = widest(kinds)
    cast = [
        pair if kind == wide else [relay.cast(v, wide) for v in pair]
        for kind, pair in zip(kinds, pairs, strict=True)
    ]
    root = reduce(relay.add, [relay.sum(relay.multiply(*pair)) for pair in cast])
    params, body = [*main.params, *(v for _, v in pairs)], relay.Tuple([root, *outputs])
    new = with_main(program, relay.Function(params, body, None, [], main.attrs))
    return replace(new, grad_outs=tuple(v.name_hint for _, v in pairs))
