"""Gradients of single operators: a record of their use, and the layer that makes it.

TVM's table (`FPrimalGradient`) is global to the process. `check` completes it by ours
(`passes.relax.own_gradients`) and puts a thin layer over the operators of one program; the layer
only passes on, unless a `Recorder` is at work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relax

from engine.session import EngineError
from passes.relax.own_gradients import OWN, Gradient
from passes.relax.rewrite import Binding, Provenance, is_floating, op_name, variables

_LAYER = 11  # TVM's own stand at 10


class Recorder:
    """Names what the gradient of each call is made of after the call, and notes where it is from.

    Args:
        provenance: of the program whose gradient is taken.

    Attributes:
        provenance: of the variables made here.
        refused: why a gradient could not be taken. TVM's own error, which an EngineError becomes
            on its way through TVM, says less.
    """

    def __init__(self, provenance: Provenance) -> None:
        self._known = provenance
        self.provenance: dict[str, tuple[str, str]] = {}
        self.refused: EngineError | None = None

    def operator(self, variable: Any) -> str:
        """PyTorch's operator that a variable of the forward came from, or ""."""
        return self._known.get(str(variable.name), ("", ""))[1]

    def use(
        self, gradient: Gradient, variable: Any, call: Any, grad: Any, builder: Any
    ) -> list[Any]:
        """Take one gradient and bind what it is made of to variables named after the call's."""
        name = str(variable.name)
        scope, source = self._known.get(name, ("", ""))
        origin = (scope, f"gradient of {source}" if source else "")
        bound: dict[int, Any] = {}

        def emit(expr: Any) -> Any:
            """Bind a nest of calls; its depth is that of one gradient's formula."""
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
            self.provenance[str(new.name)] = origin
            alive.append(expr)
            bound[expr.__chandle__()] = new
            return new

        alive: list[Any] = []  # an address is only an identity while its object lives
        try:
            return [emit(g) for g in gradient(variable, call, grad, builder)]
        except EngineError as refused:
            where = named(refused.where, scope, source)
            self.refused = EngineError(refused.kind, refused.message, where, refused.hint)
            raise


def named(operator: str, scope: str, source: str) -> str:
    """An operator for an error: what it came from, and in which module."""
    parts = [operator, source and f"from {source}", scope and f"in {scope}"]
    return " ".join(p for p in parts if p)


_recorder: Recorder | None = None
_layered: set[str] = set()
_without: set[str] = set()


def operator_of(variable: Any) -> str:
    """PyTorch's operator behind a variable of the forward, while a gradient is recorded."""
    return "" if _recorder is None else _recorder.operator(variable)


def check(bound: Sequence[Binding], root: Any, wanted: Sequence[Any], origins: Provenance) -> None:
    """Complete TVM's table for a program, and see that every gradient it needs is there.

    Args:
        bound: the program's bindings, typed.
        root: the scalar.
        wanted: the arguments whose gradients are taken.
        origins: the program's provenance.

    Raises:
        EngineError: kind "pass"; an operator between a wanted argument and the root has no
            gradient; names it and its module.
    """
    depends = {v.__chandle__() for v in wanted}
    for variable, value in bound:
        read = any(v.__chandle__() in depends for v in variables(value))
        if read and is_floating(variable):
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
            scope, source = origins.get(str(variable.name), ("", ""))
            raise EngineError(
                "pass", f"Relax has no gradient for {name or 'a call of a function'}.",
                named(name, scope, source),
                "Take the gradient of a part of the model without it, or register one with "
                "tvm.relax.op.register_gradient.",
            )  # fmt: skip


def _complete(name: str) -> None:
    if name in _layered:
        return
    full = f"relax.{name}"
    gradient = OWN.get(name) or tvm.ir.Op.get(full).get_attr("FPrimalGradient")
    if gradient is None:
        _without.add(name)
    relax.op.register_gradient(full, _layer(gradient or _nowhere), level=_LAYER)
    _layered.add(name)


def _nowhere(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """Of an operator without a gradient where none is wanted."""
    return [relax.op.grad.no_grad(a) for a in call.args]


def _layer(gradient: Gradient) -> Gradient:
    def layer(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
        if _recorder is None:
            return gradient(variable, call, grad, builder)
        return _recorder.use(gradient, variable, call, grad, builder)

    return layer


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Let a recorder see every gradient that is taken inside the block."""
    global _recorder
    _recorder = recorder
    try:
        yield
    finally:
        _recorder = None
