"""Gradients of single operators: a record of their use, and the layer that makes it.

TVM's table (`FPrimalGradient`) is global. `check` completes it by ours
(`passes.relax.training.operator_gradients`) and wraps the operators of one program; the layer only
passes on, unless a `Recorder` is at work.
"""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from relascope.passes.gradients import named, unknown
from relascope.passes.relax.ir.rewrite import Binding, Provenance, is_floating, op_name, variables
from relascope.passes.relax.training.operator_gradients import OWN
from relascope.passes.relax.training.recorder import RECORDING, Gradient

_LAYER = 11  # TVM's own stand at 10


_layered: set[str] = set()
_without: set[str] = set()


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
            scope, source = origins.get(str(variable.name), ("", ""))
            raise unknown("relax", name, named(name, scope, source))


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
        given, recorder = (variable, call, grad, builder), RECORDING.current
        return recorder.use(gradient, *given) if recorder else gradient(*given)

    return layer
