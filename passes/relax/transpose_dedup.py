"""Transposes of transposes and of products."""

from typing import Any

from tvm import relax

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir import rewrite
from relascope.passes.relax.ir.program import RelaxProgram


@listed("transpose of transpose", "the tutorial's TransposeDedup")
def transpose_dedup(program: RelaxProgram) -> RelaxProgram:
    """Merges two permute_dims into one, and removes both if they undo each other.

    After: No permute_dims reads a permute_dims, and none leaves the axes in order."""
    return rewrite.rewrite(program, {"permute_dims": _joined})


def _joined(call: Any, maker: rewrite.Maker) -> Any:
    operand = call.args[0]
    order, inner = axes_of(call), maker.look(operand)
    if rewrite.op_name(inner) == "permute_dims":  # rewritten already, so never a third below
        below = axes_of(inner)
        order, operand = [below[a] for a in order], inner.args[0]
    elif order != list(range(len(order))):
        return None
    return operand if order == list(range(len(order))) else relax.op.permute_dims(operand, order)


def axes_of(call: Any) -> list[int]:
    """The axes of a permute_dims, not negative; in reverse order if it has none."""
    rank, axes = int(call.args[0].ty.ndim), call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(a) % rank for a in axes]


@listed("transpose of a product", "ours")
def transpose_of_matmul(program: RelaxProgram) -> RelaxProgram:
    """Writes a transposed product as the product of the transposed operands in reverse order, so
    that gradients of weights need no copy.

    A weight's gradient is a transposed product. Writing its transpose to memory takes longer than
    the product, and a BLAS reads a transposed matrix at no cost.

    Before: Only a transpose reads a product.
    After: Such a product has its operands transposed."""
    main = program.main
    bound = rewrite.bindings(main)
    readers = rewrite.read_counts(bound, rewrite.results(main, bound))

    def rule(call: Any, maker: rewrite.Maker) -> Any:
        order, product = axes_of(call), maker.look(call.args[0])
        rank = len(order)
        if order != [*range(rank - 2), rank - 1, rank - 2] or rewrite.op_name(product) != "matmul":
            return None
        left, right = product.args
        if len(rewrite.shape(left)) != rank or len(rewrite.shape(right)) != rank:
            return None
        if readers[call.args[0].__chandle__()] > 1:
            return None
        return relax.op.matmul(_turned(right, order, maker), _turned(left, order, maker))

    return rewrite.rewrite(program, {"permute_dims": rule})


def _turned(operand: Any, order: list[int], maker: rewrite.Maker) -> Any:
    """An operand transposed; the inner operand if it is such a transpose itself."""
    inner = maker.look(operand)
    if rewrite.op_name(inner) == "permute_dims" and axes_of(inner) == order:
        return inner.args[0]
    return relax.op.permute_dims(operand, order)
