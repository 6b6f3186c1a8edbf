"""Records the provenance of each call's gradient while TVM takes it."""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from relascope.core.errors import EngineError, lines_of, no_gradient
from relascope.core.graph import NodeOrigin
from relascope.passes.gradients import Active
from relascope.passes.relax.ir.rewrite import Provenance, op_name


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
        bound: dict[int, Any] = {}

        def emit(expr: Any) -> Any:
            """Bind nested calls; recursion is as deep as one gradient's formula."""
            known = bound.get(expr.__chandle__())
            if known is not None:
                return known
            if isinstance(expr, relax.Tuple):
                return relax.Tuple([emit(f) for f in expr.fields])
            if isinstance(expr, tvm.ir.Call) and op_name(expr) != "grad.no_grad":
                args = [emit(a) for a in expr.args]
                made = tvm.ir.Call(expr.op, args, attrs=expr.attrs, ty_args=expr.ty_args)
            elif isinstance(expr, relax.TupleGetItem):
                made = relax.TupleGetItem(emit(expr.tuple_value), int(expr.index))
            else:
                return expr
            new = builder.emit(made, f"{name}_grad")
            self.provenance[str(new.name)] = origin.of_gradient
            alive.append(expr)
            bound[expr.__chandle__()] = new
            return new

        alive: list[Any] = []  # an address is only an identity while its object lives
        try:
            return [emit(g) for g in gradient(variable, call, grad, builder)]
        except Exception as wrong:
            error = wrong
            if not isinstance(error, EngineError):
                said, why = lines_of(wrong)[-1], "cannot be taken as it is used here"
                error = no_gradient(op_name(call), why if "span=" in said else f"{why}: {said}")
            where = origin.named(error.where)
            self.refused = EngineError(error.kind, error.message, where, error.hint)
            raise


RECORDING = Active[Recorder]()  # the recorder of every gradient that TVM takes


def operator_of(variable: Any) -> str:
    return RECORDING.current.operator(variable) if RECORDING.current else ""


Gradient = Callable[[Any, Any, Any, Any], list[Any]]
"""From a variable, the call bound to it, the variable's gradient, and a block builder, to the
gradients of the call's arguments."""
