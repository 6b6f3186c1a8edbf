"""One scalar whose gradient is the backward that PyTorch asks for."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from tvm import relay

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import with_main

_FLOATING = ("float", "bfloat")


@listed("grad_out rooted", "the tutorial", required=True, excludes=("bind",))
def root_grad_out(program: RelayProgram) -> RelayProgram:
    """Multiplies each output with its grad_out and sums, so that the gradient of this scalar is the
    backward that PyTorch asks for.

    The gradient of that scalar for an argument is the vector-Jacobian product with the grad_outs,
    which is PyTorch's backward. "main" returns (root, outputs...) afterwards; each floating output
    has a new argument `grad_out_<index>` of its own type. An output of another type has no
    gradient and gets none, and neither have the new values of buffers.

    Before: An output is of a floating type.
    After: main returns the root, then the outputs; each floating output has an argument
        grad_out_<index>.

    Raises:
        EngineError: kind "pass", if no output is floating.
    """
    main = program.main
    body = main.body
    outputs = list(body.fields) if isinstance(body, relay.Tuple) else [body]
    if not isinstance(body, relay.Tuple) and isinstance(main.ret_type, relay.TupleType):
        outputs = [relay.TupleGetItem(body, i) for i in range(len(main.ret_type.fields))]
    tuple_type = isinstance(main.ret_type, relay.TupleType)
    types = list(main.ret_type.fields) if tuple_type else [main.ret_type]
    taken = {p.name_hint for p in main.params}
    variables, terms = [], []
    count = len(outputs) - len(program.updates)
    for index, (output, kind) in enumerate(zip(outputs[:count], types[:count], strict=True)):
        if not str(kind.dtype).startswith(_FLOATING):
            continue
        name = f"grad_out_{index}"
        while name in taken:
            name += "_"
        variables.append(relay.var(name, kind))
        terms.append(relay.sum(relay.multiply(output, variables[-1])))
    if not terms:
        raise EngineError(
            "pass",
            "no output of the model is of a floating type, so there is no gradient to take",
            ", ".join(f"output {i}: {t.dtype}" for i, t in enumerate(types)),
            "choose a module with a floating output",
        )
    root = reduce(relay.add, terms)
    function = relay.Function(
        [*main.params, *variables], relay.Tuple([root, *outputs]), None, [], main.attrs
    )
    return replace(with_main(program, function), grad_outs=tuple(v.name_hint for v in variables))
