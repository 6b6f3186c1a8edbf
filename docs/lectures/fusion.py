"""Chapter 9 by hand: a product and the sum that reads it become one function."""

from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from relascope.passes.relax.ir.rewrite import bindings, op_name, read_counts, results, with_mod

IR = "relax"
NAME = "dense_add"


@relax.expr_functor.mutator
class _Fuser(relax.PyExprMutator):
    """Calls a function of its own in place of each add of a matmul that nothing else reads."""

    def __init__(self, mod, reads):
        super().__init__(mod)
        self.reads = reads

    def visit_call_(self, call):
        left = call.args[0] if op_name(call) == "add" else None
        product = self.lookup_binding(left) if isinstance(left, relax.Var) else None
        if op_name(product) != "matmul" or self.reads[left.__chandle__()] != 1:
            return super().visit_call_(call)
        given = [*product.args, self.visit_expr(call.args[1])]
        x, w, b = (relax.Var(n, a.ty) for n, a in zip("xwb", given, strict=True))
        inner = relax.BlockBuilder()
        with inner.function(NAME, [x, w, b], private=True, attrs={"Primitive": True}):
            with inner.dataflow():
                product = inner.emit(relax.op.matmul(x, w))
                out = inner.emit_output(relax.op.add(product, b))
            inner.emit_func_output(out)
        made = inner.get()[NAME].with_attr("Composite", NAME)
        return relax.Call(self.builder_.add_func(made, NAME), given)


def fuse_by_hand(program):
    """Makes one function of a product and the sum that reads it."""
    bound = bindings(program.main)
    fuser = _Fuser(program.mod, read_counts(bound, results(program.main, bound)))
    fuser.builder_.update_func(program.mod.get_global_var("main"), fuser.visit_expr(program.main))
    return with_mod(program, relax.transform.DeadCodeElimination()(fuser.builder_.get()))


def fuse_by_pattern(program):
    """Does the same by a pattern and TVM's FuseOpsByPattern."""
    pattern = is_op("relax.add")(is_op("relax.matmul")(wildcard(), wildcard()), wildcard())
    return with_mod(program, relax.transform.FuseOpsByPattern([(NAME, pattern)])(program.mod))
