"""The scalar root of the gradient, and the reverse-mode gradient with the provenance TVM drops."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from typing import Any

import tvm
from tvm import relax

from relascope.core.errors import EngineError, lines_of
from relascope.core.graph import NodeOrigin
from relascope.passes import gradients
from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir import rewrite
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Binding, Provenance, is_floating, op_name, variables
from relascope.passes.relax.training.operator_gradients import OWN, none
from relascope.passes.relax.training.recorder import RECORDING, Recorder


@listed("grad_out rooted", "the tutorial", required=True, excludes=("bind", "root_grad_out"))
def root_grad_out(program: RelaxProgram) -> RelaxProgram:
    """Multiplies each output by its grad_out and sums all, so that the gradient of this scalar is
    PyTorch's backward.

    The gradient of that scalar for an argument is the vector-Jacobian product with the grad_outs,
    which is PyTorch's backward. "main" returns (root, outputs...) afterwards; see `rooted`.

    Before: An output has a floating type, and the parameters are arguments.
    After: main returns the root, then the outputs; each floating output has an argument
        grad_out_<index>.

    Raises:
        EngineError: kind "pass", if no output is floating, or the gradient was taken before."""
    main = program.main
    if program.grad_outs:
        hint = "take the gradient once; a joint graph by PyTorch comes with its gradients"
        raise EngineError("pass", "the gradient's root already exists", "root_grad_out", hint)
    bound = rewrite.bindings(main)
    outputs = rewrite.results(main, bound)
    maker = rewrite.Maker({str(v.name) for v in (*(v for v, _ in bound), *main.params)}, {})
    maker.origin = "root"
    taken, types = {str(p.name) for p in main.params}, [o.ty for o in outputs]
    pairs = gradients.rooted(program, outputs, types, taken, relax.Var)
    wide = gradients.widest([v.ty.dtype for _, v in pairs])
    cast = [[v if str(v.ty.dtype) == wide else relax.op.astype(v, wide) for v in p] for p in pairs]
    root = reduce(relax.op.add, [relax.op.sum(relax.op.multiply(*pair)) for pair in cast])
    params, returned = [*main.params, *(v for _, v in pairs)], [maker.emit(root), *outputs]
    function = rewrite.function_of(params, [*bound, *maker.bound], returned, main.attrs)
    new = replace(program, grad_outs=tuple(str(v.name) for _, v in pairs))
    return rewrite.with_main(new, function)


_HALF = "bfloat16"
_ADJOINT = "_adjoint"  # how TVM names the gradient of a variable


@listed(
    "Gradient",
    "TVM, with gradients of ours for operators that lack one",
    required=True,
    needs=("root_grad_out",),
    excludes=("gradient",),
)
def gradient(program: RelaxProgram) -> RelaxProgram:
    """Takes the reverse-mode gradient for every input and parameter.

    "main" must return (root, outputs...), see `root_grad_out`. Afterwards it returns, flat,
    (outputs..., gradients...), the latter in the order of the arguments; buffers, masks and
    grad_outs need none, and arguments of other types have none.

    The operators of a call's gradient have the call's module, and "gradient of" its operator.

    Before: main returns the root, and every operator that leads to it has a gradient.
    After: main returns a flat tuple: outputs, then the gradients of inputs and parameters.

    Raises:
        EngineError: kind "pass", if an operator on the way has no gradient; names it."""
    main = program.main
    bound = rewrite.bindings(main)
    returned = rewrite.results(main, bound)
    if program.gradients or not program.grad_outs:
        message = "there is no scalar to take the gradient of"
        raise EngineError("pass", message, "gradient", "put root_grad_out before it")
    without = gradients.without_gradient(program)
    wanted = [p for p in main.params if str(p.name) not in without and rewrite.is_floating(p)]
    _check(bound, returned[0], wanted, program.provenance)
    recorder = Recorder(program.provenance)
    halves = {str(p.name): p for p in wanted if rewrite.dtype(p) == _HALF}
    wide = {n: relax.Var(n, relax.TensorType(p.ty.shape, "float32")) for n, p in halves.items()}
    wanted = [wide.get(str(p.name), p) for p in wanted]
    rooted = _with_target(main, bound, returned, wide).with_attr("global_symbol", "main")
    mod = relax.transform.Normalize()(tvm.IRModule({"main": rooted}))
    with RECORDING.inside(recorder):
        try:
            taken = relax.transform.Gradient("main", require_grads=wanted, target_index=0)(mod)
        except Exception as error:
            if recorder.refused is not None:
                raise recorder.refused from error
            message = f"TVM takes no gradient of this program: {lines_of(error)[-1]}"
            raise EngineError("pass", message, "gradient") from error
    adjoint = taken["main_adjoint"]
    bound = rewrite.bindings(adjoint)
    # ((root, outputs...), gradients)
    _, *rest = rewrite.results(adjoint, bound)
    bound, rest = _without_stops(bound, rest)
    params = adjoint.params
    if halves:
        params, bound, rest = _narrowed(params, bound, rest, halves, [str(w.name) for w in wanted])
    function = rewrite.function_of(params, bound, rest, main.attrs)
    provenance = {**program.provenance, **recorder.provenance}
    provenance.update(_of_adjoints(bound, provenance))
    names = tuple(str(p.name) for p in wanted)
    return rewrite.with_main(replace(program, gradients=names, provenance=provenance), function)


def _without_stops(
    bound: Sequence[rewrite.Binding], returned: Sequence[Any]
) -> tuple[list[rewrite.Binding], list[Any]]:
    """The bindings and results without `grad.no_grad`, which has served its purpose."""
    instead: dict[int, Any] = {}
    kept = []
    for variable, value in bound:
        value = rewrite.substituted(value, instead)
        if rewrite.op_name(value) == "grad.no_grad":
            instead[variable.__chandle__()] = value.args[0]
        else:
            kept.append((variable, value))
    return kept, [rewrite.substituted(r, instead) for r in returned]


def _narrowed(
    params: Sequence[Any],
    bound: Sequence[rewrite.Binding],
    returned: Sequence[Any],
    halves: Mapping[str, Any],
    gradients: Sequence[str],
) -> tuple[list[Any], list[rewrite.Binding], list[Any]]:
    """A joint function with bfloat16 arguments and gradients, cast inside. `halves` has by name the
    arguments that float32 variables replaced; `gradients` names the arguments whose gradients are
    the last results."""
    wide = {p.__chandle__(): halves[str(p.name)] for p in params if str(p.name) in halves}
    instead: dict[int, Any] = {}
    casts: dict[int, Any] = {}
    kept = []
    for variable, value in bound:
        value = rewrite.substituted(value, instead)
        if rewrite.op_name(value) == "astype":
            (given,) = value.args
            if given.__chandle__() in wide:
                instead[variable.__chandle__()] = wide[given.__chandle__()]
                continue
            if rewrite.dtype(given) == _HALF:
                casts[variable.__chandle__()] = given
        kept.append((variable, value))
    results = [rewrite.substituted(r, instead) for r in returned]
    maker = rewrite.Maker({str(v.name) for v in (*(v for v, _ in kept), *params)}, {})
    maker.origin = "gradient"
    for place, name in enumerate(reversed(gradients), 1):
        if name in halves:
            found = results[-place]
            cast = relax.op.astype(found, _HALF)
            results[-place] = casts.get(found.__chandle__()) or maker.emit(cast)
    return [wide.get(p.__chandle__(), p) for p in params], [*kept, *maker.bound], results


def _with_target(
    main: Any, bound: Sequence[rewrite.Binding], returned: Sequence[Any], wide: Mapping[str, Any]
) -> Any:
    """The function in the form that TVM's Gradient reads, with a variable for each result. Float32
    variables in `wide`, by name, replace bfloat16 arguments, for which TVM has no gradient."""
    outs = [relax.Var(f"returned_{i}", r.ty) for i, r in enumerate(returned)]
    ends = [relax.VarBinding(o, r) for o, r in zip(outs, returned, strict=True)]
    block, halves = main.body.blocks[0], [p for p in main.params if str(p.name) in wide]
    casts = [relax.VarBinding(p, relax.op.astype(wide[str(p.name)], _HALF)) for p in halves]
    inner = relax.DataflowBlock([*casts, *block.bindings[: len(bound) - 1], *ends])
    body = relax.SeqExpr([inner], relax.Tuple(outs))
    params = [wide.get(str(p.name), p) for p in main.params]
    return relax.Function(params, body, relax.TupleType([o.ty for o in outs]), True)


def _of_adjoints(bound: Sequence[Binding], known: Provenance) -> dict[str, NodeOrigin]:
    """The provenance of the sums that TVM makes of a variable's gradients."""
    found = {}
    for variable, _ in bound:
        name = str(variable.name)
        whose, mark, _ = name.rpartition(_ADJOINT)
        if not mark or name in known:
            continue
        if whose in known:
            found[name] = known[whose].of_gradient
        else:
            found[name] = NodeOrigin(whose.rpartition(".")[0])
    return found


def keep_gradients(program: RelaxProgram, wanted: Collection[str]) -> RelaxProgram:
    """A joint program that returns the gradients of `wanted` arguments only."""
    main = program.main
    bound = rewrite.bindings(main)
    returned, names = gradients.kept_results(program, rewrite.results(main, bound), wanted)
    function = rewrite.function_of(main.params, bound, returned, main.attrs)
    return replace(rewrite.with_main(program, function), gradients=names)


_LAYER = 11  # TVM's own are at 10
_without: set[str] = set()


def _check(bound: Sequence[Binding], root: Any, wanted: Sequence[Any], origins: Provenance) -> None:
    """Add relascope's gradients to TVM's global table (`FPrimalGradient`) for the operators of
    typed bindings, each in a layer that calls the active `Recorder`, if any. Raises EngineError of
    kind "pass" if an operator between a wanted argument and the root has no gradient, and names it
    and its module."""
    depends = {v.__chandle__() for v in wanted}
    for variable, value in bound:
        read = any(v.__chandle__() in depends for v in variables(value))
        if read and is_floating(variable) and op_name(value) != "grad.no_grad":
            depends.add(variable.__chandle__())
    needed = {root.__chandle__()}
    for variable, value in reversed(bound):
        if variable.__chandle__() not in needed:
            continue
        needed.update(v.__chandle__() for v in variables(value))
        if not isinstance(value, tvm.ir.Call):
            continue
        name = op_name(value)
        if name:
            _complete(name)
        if variable.__chandle__() in depends and (not name or name in _without):
            origin = origins.get(str(variable.name), NodeOrigin())
            raise gradients.unknown("relax", name, origin.named(name))


@cache
def _complete(name: str) -> None:
    full = f"relax.{name}"
    gradient = OWN.get(name) or tvm.ir.Op.get(full).get_attr("FPrimalGradient")
    if gradient is None:
        _without.add(name)
    gradient = gradient or (lambda variable, call, grad, builder: none(call))
    relax.op.register_gradient(full, partial(RECORDING.layer, gradient), level=_LAYER)
