"""Records the provenance of each call's gradient while TVM takes it."""

from collections.abc import Callable, Iterable
from typing import Any

import tvm
from tvm import relax

from relascope.core.errors import EngineError, lines_of, no_gradient
from relascope.core.graph import NodeOrigin
from relascope.passes.gradients import Active
from relascope.passes.relax.ir.rewrite import Provenance, op_name, with_args


class Recorder:
    """Names the variables of each call's gradient after the call, and records their origin.
    `provenance` is that of the variables made here; `refused` says why a gradient could not be
    taken, with more than TVM's own error."""

    def __init__(self, provenance: Provenance) -> None:
        self._known = provenance
        self.provenance: dict[str, NodeOrigin] = {}
        self.refused: EngineError | None = None

    def operator(self, variable: Any) -> str:
        """PyTorch's operator that a variable of the forward came from, or ""."""
        return self._known.get(str(variable.name), NodeOrigin()).source

    def use(
        self, gradient: "Gradient", variable: Any, call: Any, grad: Any, builder: Any
    ) -> list[Any]:
        """Take one gradient and bind its calls to variables named after the call's."""
        name = str(variable.name)
        origin = self._known.get(name, NodeOrigin())

        def emit(expr: Any) -> Any:
            new = builder.emit(expr, f"{name}_grad")
            self.provenance[str(new.name)] = origin.of_gradient
            return new

        try:
            return bound(gradient(variable, call, grad, builder), emit)
        except Exception as wrong:
            error = wrong
            if not isinstance(error, EngineError):
                said, why = lines_of(wrong)[-1], "cannot be taken as it is used here"
                error = no_gradient(op_name(call), why if "span=" in said else f"{why}: {said}")
            where = origin.named(error.where)
            self.refused = EngineError(error.kind, error.message, where, error.hint)
            raise


def bound(gradients: Iterable[Any], emit: Callable[[Any], Any]) -> list[Any]:
    """Gradients with the calls nested in them bound by `emit`; recursion is as deep as one
    gradient's formula."""
    known: dict[int, tuple[Any, Any]] = {}  # an address is only an identity while its object lives

    def of(expr: Any) -> Any:
        if expr.__chandle__() in known:
            return known[expr.__chandle__()][1]
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([of(f) for f in expr.fields])
        if isinstance(expr, tvm.ir.Call) and op_name(expr) != "grad.no_grad":
            made = with_args(expr, [of(a) for a in expr.args])
        elif isinstance(expr, relax.TupleGetItem):
            made = relax.TupleGetItem(of(expr.tuple_value), int(expr.index))
        else:
            return expr
        known[expr.__chandle__()] = expr, emit(made)
        return known[expr.__chandle__()][1]

    return [of(g) for g in gradients]


RECORDING = Active[Recorder]()  # the recorder of every gradient that TVM takes


def operator_of(variable: Any) -> str:
    return RECORDING.current.operator(variable) if RECORDING.current else ""


Gradient = Callable[[Any, Any, Any, Any], list[Any]]
"""From a variable, the call bound to it, the variable's gradient, and a block builder, to the
gradients of the call's arguments."""
