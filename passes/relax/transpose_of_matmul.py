"""Transposed products."""

from typing import Any

from tvm import relax

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir import rewrite
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.transpose_dedup import axes_of


@listed("transpose of a product", "ours")
def transpose_of_matmul(program: RelaxProgram) -> RelaxProgram:
    """Writes a transposed product as the product of the transposed operands, the other way round:
    gradients of weights need no copy then.

    A gradient of a weight is a product that is transposed: writing it out once more takes longer
    than the product, and what reads a matrix transposed costs a BLAS nothing.

    Before: A product is read by nothing but its transpose.
    After: Such a product is written with its operands transposed.
    """
    main = program.main
    bound = rewrite.bindings(main)
    readers = rewrite.read_counts(bound, rewrite.results(main, bound))

    def rule(call: Any, maker: rewrite.Maker) -> Any:
        if rewrite.op_name(call) != "permute_dims":
            return None
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

    return rewrite.rewrite(program, rule)


def _turned(operand: Any, order: list[int], maker: rewrite.Maker) -> Any:
    """An operand transposed; of one that is a transpose itself, what that is of."""
    inner = maker.look(operand)
    if rewrite.op_name(inner) == "permute_dims" and axes_of(inner) == order:
        return inner.args[0]
    return relax.op.permute_dims(operand, order)
