"""Calls of PyTorch's matmul as kernels that call OpenBLAS; see `engine.cpu_kernels.openblas`."""

import re
from typing import Any

from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from relascope.engine.cpu_kernels import openblas
from relascope.engine.relax.draw.to_graph import tensor_types
from relascope.engine.relax.kernels import blas

LIBRARY = "relascope.library"
"""A kernel's attribute: the library function that it calls."""

_KERNEL = "openblas_"


def native(mod: Any) -> Any:
    """A module with kernels that call OpenBLAS in place of the functions of `kernels.blas`; those
    with shapes unknown at build time stay with PyTorch. Raises EngineError of kind "target" if
    OpenBLAS is not installed."""
    openblas.load()
    rewriter = _OpenblasRewriter(mod)
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(name, rewriter.visit_expr(function))
    return rewriter.builder_.get()


def replaced(symbol: str) -> str:
    """The function that a kernel replaced, by the kernel's symbol; other symbols stay."""
    found = re.fullmatch(rf"{_KERNEL}(matmul_[nt]{{2}})\d*", symbol)
    return f"relascope.{found[1]}" if found else symbol


@mutator
class _OpenblasRewriter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        made = self.visit_expr_post_order(call)
        symbol = blas.symbol_of(made)
        if symbol not in blas.TURNS:
            return made
        turn_a, turn_b = blas.TURNS[symbol]
        (out,) = tensor_types(made.ty)
        shapes = [tensor_types(a.ty)[0].shape for a in made.args[1].fields]
        left, right = (tuple(d for d in s if isinstance(d, int)) for s in shapes)
        known = all(isinstance(d, int) for s in (*shapes, out.shape) for d in s)
        if not known or not all((*left, *right)):
            return made  # unknown, or empty
        product = openblas.Product(left, right, turn_a, turn_b, out.dtype)
        a, b = (te.placeholder(s, out.dtype, n) for s, n in ((left, "a"), (right, "b")))
        kernel = te.create_prim_func([a, b, product.kernel(te, tirx, a, b)])
        attrs = {"op_pattern": blas.OPAQUE, LIBRARY: openblas.FUNCTIONS[out.dtype]}
        attrs |= {"tirx.noalias": True, "tirx.is_scheduled": True}
        kernel = kernel.without_attr("global_symbol").with_attrs(attrs)
        name = self.builder_.add_func(kernel, _KERNEL + symbol.rpartition(".")[2])
        return relax.call_tir(name, made.args[1], made.ty)
