"""Matrix products and convolutions by PyTorch's libraries inside functions that TVM builds.

TVM has no fast matmuls for the CPU of its own. For a target with `engine.relax.targets.BLAS` each
`relax.matmul` becomes a call of a function registered here, which has PyTorch write the product
into the tensor that TVM gives it. A transpose of an operand's last two axes is taken along: BLAS
reads a matrix either way. Convolutions go the same way, see `engine.relax.convolution`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from engine.relax.convolution import dispatched

_NAME = "relascope.matmul"
_SERVED = ("relax.matmul", "relax.nn.conv2d", "relax.nn.conv2d_transpose")
_FLOATS = ("float32", "float64")


@functools.cache
def register() -> None:
    """Give TVM the matmuls, one for each way in which the operands may be turned."""
    for turn_a in (False, True):
        for turn_b in (False, True):
            tvm.register_global_func(
                _name(turn_a, turn_b), functools.partial(_matmul, turn_a, turn_b), override=True
            )


def _name(turn_a: bool, turn_b: bool) -> str:
    return f"{_NAME}_{'t' if turn_a else 'n'}{'t' if turn_b else 'n'}"


def _matmul(turn_a: bool, turn_b: bool, a: Any, b: Any, out: Any) -> None:
    left, right = torch.from_dlpack(a), torch.from_dlpack(b)
    left = left.mT if turn_a else left
    right = right.mT if turn_b else right
    torch.matmul(left, right, out=torch.from_dlpack(out))


def dispatch(mod: Any) -> Any:
    """The module with its floating matmuls and convolutions as calls of PyTorch."""
    rewriter = _Rewriter(mod)
    new = tvm.IRModule(mod.functions)
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            new[name] = rewriter.visit_expr(function)
    return relax.transform.DeadCodeElimination()(new)


@mutator
class _Rewriter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        made = self.visit_expr_post_order(call)
        if not isinstance(made.op, tvm.ir.Op) or made.op.name not in _SERVED:
            return made
        kind = call.ty
        types = [kind, *(a.ty for a in made.args)]
        if any(str(t.dtype) != str(kind.dtype) or str(t.dtype) not in _FLOATS for t in types):
            return made
        if made.op.name != "relax.matmul":
            instead = dispatched(self.builder_.normalize(made))
            return made if instead is None else instead
        if any(int(t.ndim) < 2 for t in types):
            return made
        (left, turn_a), (right, turn_b) = (self.turned(a) for a in made.args)
        return relax.op.call_dps_packed(_name(turn_a, turn_b), (left, right), kind)

    def turned(self, operand: Any) -> tuple[Any, bool]:
        """What a transpose of the last two axes is of, and whether there was one."""
        bound = self.lookup_binding(operand) if isinstance(operand, tvm.ir.Var) else None
        if (
            isinstance(bound, tvm.ir.Call)
            and isinstance(bound.op, tvm.ir.Op)
            and bound.op.name == "relax.permute_dims"
        ):
            rank = int(operand.ty.ndim)
            axes = bound.attrs.axes
            axes = list(range(rank))[::-1] if axes is None else [int(a) % rank for a in axes]
            if axes == [*range(rank - 2), rank - 1, rank - 2]:
                return bound.args[0], True
        return operand, False
