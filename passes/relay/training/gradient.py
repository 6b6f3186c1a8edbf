"""The scalar root of the gradient, and the reverse-mode gradient with the provenance TVM drops."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import reduce
from graphlib import TopologicalSorter
from typing import Any

import tvm
from tvm import relay

from relascope.core.errors import EngineError
from relascope.passes.catalogue.entry import listed
from relascope.passes.gradients import kept_results, rooted, widest, without_gradient
from relascope.passes.relay.ir import rewrite
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import unbound, with_main
from relascope.passes.relay.ir.spans import Spans
from relascope.passes.relay.ir.stop_gradient import NAME
from relascope.passes.relay.training.operator_gradients import RECORDING, Recorder, prepare


@listed("grad_out rooted", "the tutorial", required=True, excludes=("bind", "root_grad_out"))
def root_grad_out(program: RelayProgram) -> RelayProgram:
    """Multiplies each output by its grad_out and sums all, so that the gradient of this scalar is
    PyTorch's backward.

    The gradient of that scalar for an argument is the vector-Jacobian product with the grad_outs,
    which is PyTorch's backward. "main" returns (root, outputs...) afterwards; see `rooted`.

    Before: An output has a floating type.
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


Binding = tuple[Any, Any]


@listed(
    "gradient",
    "TVM, relay.transform.gradient(mode='first_order')",
    required=True,
    needs=("root_grad_out",),
    excludes=("gradient",),
)
def gradient(program: RelayProgram) -> RelayProgram:
    """Takes the reverse-mode gradient for every input and parameter.

    "main" must return (root, outputs...), see `root_grad_out`. Afterwards it is a chain of let
    bindings that ends in ((outputs...), (gradient of each argument...)).

    TVM drops every span. Forward calls get theirs back; each operator of a call's gradient gets a
    new span with the call's module, and "gradient of" its operator.

    Before: main returns the root, and every operator that leads to it has a gradient.
    After: main is a chain of let bindings that ends in ((outputs), (gradients of all arguments)).

    Raises:
        EngineError: kind "pass", if an operator on the way has no gradient; names it.
    """
    main = program.main
    if not program.grad_outs or not isinstance(main.body, relay.Tuple):
        message = "the program returns no scalar to take the gradient of"
        raise EngineError("pass", message, "gradient", "run root_grad_out before it")
    main, stopped = _with_stops_as_arguments(main)
    count = len(main.params) - len(stopped)
    root, *fields = main.body.fields
    outputs, ends = fields[: len(fields) - len(stopped)], fields[len(fields) - len(stopped) :]
    calls = [e for e in rewrite.post_order(root) if isinstance(e, relay.Call)]
    spans = Spans(program.provenance)
    prepare(calls, spans.where)
    recorder = Recorder(calls, spans.of_gradient)
    scalar = relay.Function(main.params, root, None, [], main.attrs)
    with RECORDING.inside(recorder):
        taken = relay.transform.gradient(_typed(scalar), mode="first_order")
    bindings, (_, gradients) = _bindings(taken.body)
    parameters = dict(zip((p.name_hint for p in main.params), taken.params, strict=True))
    bindings, bound = _with_provenance(bindings, recorder, spans, program)
    if ends:
        made = _in_terms_of(relay.Tuple(ends), bound, parameters).fields
        bindings = _in_order([*bindings, *zip([parameters[n] for n in stopped], made, strict=True)])
        gradients = relay.Tuple(gradients.fields[:count])
    body = relay.Tuple([_in_terms_of(relay.Tuple(outputs), bound, parameters), gradients])
    for variable, value in reversed(bindings):
        body = relay.Let(variable, value, body)
    function = relay.Function(taken.params[:count], body, None, [], main.attrs)
    return replace(rewrite.with_main(program, function), provenance=spans.provenance)


def _with_stops_as_arguments(main: Any) -> tuple[Any, list[str]]:
    """The typed function with arguments in place of tensors through which no gradient flows, and
    these tensors as its last results; the arguments' names."""
    stops = [e for e in rewrite.post_order(main.body) if rewrite.op_name(e) == NAME]
    if not stops:
        return main, []
    new = [relay.Var(f"stop_gradient_{i}", s.checked_type) for i, s in enumerate(stops)]
    instead = {s.handle.value: v for s, v in zip(stops, new, strict=True)}
    results = [*main.body.fields, *(s.args[0] for s in stops)]
    made = rewrite.rebuilt(results, instead)
    fields = [made[r.handle.value] for r in results]
    function = relay.Function([*main.params, *new], relay.Tuple(fields), None, [], main.attrs)
    return _typed(function), [v.name_hint for v in new]


def _in_order(bindings: list[Binding]) -> list[Binding]:
    """Bindings ordered so that each follows those that it reads."""
    values = {variable.handle.value: (variable, value) for variable, value in bindings}
    read = {
        handle: [h for e in rewrite.post_order(value) if (h := e.handle.value) in values]
        for handle, (_, value) in values.items()
    }
    return [values[handle] for handle in TopologicalSorter(read).static_order()]


def _bindings(body: Any) -> tuple[list[Binding], tuple[Any, Any]]:
    """All let bindings in order, and the root and the tuple of gradients in which they end."""
    bindings: list[Binding] = []

    def unwind(expr: Any) -> Any:
        while isinstance(expr, relay.Let):
            bindings.append((expr.var, expr.value))
            expr = expr.body
        return expr

    root, gradients = unwind(body).fields
    return bindings, (root, unwind(gradients))


def _with_provenance(
    bindings: list[Binding], recorder: Recorder, spans: Spans, program: RelayProgram
) -> tuple[list[Binding], dict[int, Any]]:
    """The bindings with spans; and the variable of each of the program's calls, by handle."""
    bound: dict[int, Any] = {}
    copies: dict[int, Any] = {}  # TVM's copies of forward calls, which some gradients read again
    origin: dict[int, Any] = {}  # the span for the gradient of a variable's value
    result: list[Binding] = []
    for variable, value in bindings:
        handle, name = value.handle.value, rewrite.op_name(value)
        if handle in recorder.forward:
            copy, original = recorder.forward[handle]
            value = relay.Call(copy.op, copy.args, copy.attrs, copy.type_args, original.span)
            bound[original.handle.value] = copies[handle] = variable
            origin[variable.handle.value] = spans.of_gradient(original)
        elif isinstance(value, relay.Var):
            if value.name_hint in program.params:
                origin[variable.handle.value] = spans.of_parameter(value.name_hint)
        elif isinstance(value, relay.Call):
            value = rewrite.rewrite_body(value, lambda call, _: copies.get(call.handle.value))
            # A call still without a span starts the gradient of one variable, or adds to it.
            if name in ("zeros_like", "add") and value.span is None:
                span = origin.get(value.args[0].handle.value)
                origin[variable.handle.value] = span
                if span is not None:
                    value = relay.Call(value.op, value.args, value.attrs, value.type_args, span)
        result.append((variable, value))
    return result, bound


def _in_terms_of(expr: Any, bound: Mapping[int, Any], parameters: Mapping[str, Any]) -> Any:
    """An expression of the program, with its calls replaced by the variables bound to them."""
    read = (v for v in rewrite.post_order(expr) if isinstance(v, relay.Var))
    instead = {v.handle.value: parameters[v.name_hint] for v in read}
    return rewrite.rebuilt([expr], {**instead, **bound})[expr.handle.value]


def _typed(function: Any) -> Any:
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]


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


def keep_gradients(program: RelayProgram, wanted: Collection[str]) -> RelayProgram:
    """A joint program in graph normal form with the gradients of `wanted` arguments only."""
    main = program.main
    results, names = kept_results(program, list(main.body.fields), wanted)
    function = relay.Function(main.params, relay.Tuple(results), None, [], main.attrs)
    return replace(rewrite.with_main(program, function), gradients=names)
