"""Turns let bindings back into a graph that returns the outputs and the wanted gradients."""

from dataclasses import replace

from tvm import relay

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.gradients import without_gradient
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import unbound, with_main


@listed("graph normal form", "the tutorial", required=True, needs=("gradient",))
def graph_normal_form(program: RelayProgram) -> RelayProgram:
    """Turns the gradient's let bindings back into a graph, and keeps the outputs and the gradients
    of inputs and parameters.

    It keeps the gradients of the inputs and parameters of a floating type, in the order of the
    arguments; buffers, masks and grad_outs need none.

    Before: It runs right after the gradient.
    After: main is a graph again and returns a flat tuple: outputs, then the gradients of inputs and
        parameters.
    """
    main = program.main
    body = unbound(main.body)
    if program.gradients or not isinstance(body, relay.Tuple):
        message = "there is no gradient to keep"
        raise EngineError("pass", message, "graph_normal_form", "run it once, after the gradient")
    outputs, gradients = body.fields
    without = without_gradient(program)
    wanted = [
        (p.name_hint, g)
        for p, g in zip(main.params, gradients.fields, strict=True)
        if p.name_hint not in without and "float" in p.checked_type.dtype
    ]
    results = relay.Tuple([*outputs.fields, *(g for _, g in wanted)])
    function = relay.Function(main.params, results, None, [], main.attrs)
    return replace(with_main(program, function), gradients=tuple(name for name, _ in wanted))
