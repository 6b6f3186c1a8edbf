"""Splits as slices, before kernels are fused.

If a kernel reads fields of several tuples, TVM's FuseOps may by chance confuse them. Slices are
also fused into their readers, without a copy.
"""

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relascope.passes.relax.ir.rewrite import everything, op_name


@tvm.transform.module_pass(opt_level=0, name="relascope.split_slices")
def split_slices(mod: Any, context: Any) -> Any:
    """Turn every field of a split into a slice of the tensor that is split."""
    functions = {n: f for n, f in mod.functions.items() if isinstance(f, relax.Function)}
    if not any(op_name(e) == "split" for f in functions.values() for e in everything(f)):
        return mod
    rewriter = _SliceRewriter(mod)
    for name, function in functions.items():
        rewriter.builder_.update_func(name, rewriter.visit_expr(function))
    return relax.transform.DeadCodeElimination()(rewriter.builder_.get())


@mutator
class _SliceRewriter(PyExprMutator):
    def visit_tuple_getitem_(self, item: Any) -> Any:
        made = self.visit_expr_post_order(item)
        split = self.lookup_binding(made.tuple_value)
        if op_name(split) != "split":
            return made
        data, parts = split.args[0], split.attrs.indices_or_sections
        axis, index = int(split.attrs.axis) % int(data.ty.ndim), int(made.index)
        sizes = getattr(data.ty.shape, "values", None)
        if sizes is None or not isinstance(sizes[axis], tvm.tirx.IntImm):
            return made  # an open size has no known end
        size = int(sizes[axis])
        if isinstance(parts, int | tvm.tirx.IntImm):
            step = -(-size // int(parts))
            ends = [min(size, step * (i + 1)) for i in range(int(parts))]
        else:
            ends = [*map(int, parts), size]
        return relax.op.strided_slice(data, [axis], [[0, *ends][index]], [ends[index]])
