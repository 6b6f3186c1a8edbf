"""The reverse-mode gradient, with the provenance that TVM's own drops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from relascope.core.errors import EngineError, lines_of
from relascope.passes.catalogue.entry import listed
from relascope.passes.gradients import without_gradient
from relascope.passes.relax.ir import rewrite
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.training.gradient_table import check
from relascope.passes.relax.training.recorder import RECORDING, Recorder

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
    grad_outs need none, and what is not floating has none.

    What the gradient of a call is made of has the call's module, and "gradient of" its operator.

    Before: main returns the root, and every operator on the way has a gradient.
    After: main returns a flat tuple: outputs, then the gradients of inputs and parameters.

    Raises:
        EngineError: kind "pass", if an operator on the way has no gradient; names it. Or if the
            root is of a dtype that TVM does not differentiate.
    """
    main = program.main
    bound = rewrite.bindings(main)
    returned = rewrite.results(main, bound)
    if program.gradients or not program.grad_outs:
        message = "there is no scalar to take the gradient of"
        raise EngineError("pass", message, "gradient", "put root_grad_out before it")
    if str(returned[0].ty.dtype) not in ("float16", "float32", "float64"):
        message = f"TVM takes no gradient of an output in {returned[0].ty.dtype}"
        raise EngineError("pass", message, "gradient", "cast the output to float32")
    without = without_gradient(program)
    wanted = [p for p in main.params if str(p.name) not in without and rewrite.is_floating(p)]
    check(bound, returned[0], wanted, program.provenance)
    recorder = Recorder(program.provenance)
    rooted = _with_target(main, bound, returned).with_attr("global_symbol", "main")
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
    function = rewrite.function_of(adjoint.params, bound, rest, main.attrs)
    provenance = {**program.provenance, **recorder.provenance}
    provenance.update(_of_adjoints(bound, provenance))
    names = tuple(str(p.name) for p in wanted)
    return rewrite.with_main(replace(program, gradients=names, provenance=provenance), function)


def _without_stops(
    bound: Sequence[rewrite.Binding], returned: Sequence[Any]
) -> tuple[list[rewrite.Binding], list[Any]]:
    """What stopped the gradient has done so."""
    instead: dict[int, Any] = {}
    kept = []
    for variable, value in bound:
        value = rewrite.substituted(value, instead)
        if rewrite.op_name(value) == "grad.no_grad":
            instead[variable.__chandle__()] = value.args[0]
        else:
            kept.append((variable, value))
    return kept, [rewrite.substituted(r, instead) for r in returned]


def _with_target(main: Any, bound: Sequence[rewrite.Binding], returned: Sequence[Any]) -> Any:
    """The function as TVM's Gradient reads it: its results are variables of their own."""
    outs = [relax.Var(f"returned_{i}", r.ty) for i, r in enumerate(returned)]
    ends = [relax.VarBinding(o, r) for o, r in zip(outs, returned, strict=True)]
    block = main.body.blocks[0]
    inner = relax.DataflowBlock([*block.bindings[: len(bound) - 1], *ends])
    body = relax.SeqExpr([inner], relax.Tuple(outs))
    return relax.Function(main.params, body, relax.TupleType([o.ty for o in outs]), True)


def _of_adjoints(
    bound: Sequence[rewrite.Binding], known: rewrite.Provenance
) -> dict[str, tuple[str, str]]:
    """Where the sums come from that TVM makes of the gradients of one variable."""
    found = {}
    for variable, _ in bound:
        name = str(variable.name)
        whose, mark, _ = name.rpartition(_ADJOINT)
        if not mark or name in known:
            continue
        if whose in known:
            scope, source = known[whose]
            found[name] = scope, f"gradient of {source}" if source else ""
        else:
            found[name] = whose.rpartition(".")[0], ""
    return found
