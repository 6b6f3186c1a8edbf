"""Chapter 4 by hand: a product becomes a call of a kernel whose loops are written here."""

from tvm import relax
from tvm.script import tirx as T

from relascope.passes.relax.ir.rewrite import op_name, shape, with_mod

IR = "relax"


def _kernel(rows, inner, columns, dtype):
    @T.prim_func(private=True, s_tir=True)
    def matmul(
        x: T.Buffer((rows, inner), dtype),
        w: T.Buffer((inner, columns), dtype),
        y: T.Buffer((rows, columns), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        for i, j, k in T.grid(rows, columns, inner):
            with T.sblock("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.cast(0, dtype)
                y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]

    return matmul


@relax.expr_functor.mutator
class _Caller(relax.PyExprMutator):
    def visit_call_(self, call):
        if op_name(call) != "matmul" or [len(shape(a)) for a in call.args] != [2, 2]:
            return super().visit_call_(call)
        x, w = (self.visit_expr(a) for a in call.args)
        sizes = (T.int64(n) for n in (*shape(x), shape(w)[1]))  # as those of TVM's own kernels
        kernel = _kernel(*sizes, str(call.ty.dtype))
        var = self.builder_.add_func(kernel, "matmul")
        return relax.call_tir(var, [x, w], out_ty=call.ty)


def matmul_by_hand(program):
    """Gives each product of two matrices the kernel that is written here."""
    caller = _Caller(program.mod)
    main = program.mod.get_global_var("main")
    caller.builder_.update_func(main, caller.visit_expr(program.main))
    return with_mod(program, caller.builder_.get())
