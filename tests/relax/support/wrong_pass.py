"""A person's script that compiles a model with a pass of theirs, which is wrong: it takes relu for
abs."""

import numpy as np
import tvm
from tvm import relax


def model():
    builder, of = relax.BlockBuilder(), relax.TensorType
    shapes = {"x": (4, 16), "w": (16, 16), "b": (16,)}
    x, w, b = (relax.Var(name, of(shape, "float32")) for name, shape in shapes.items())
    with builder.function("main", [x, w, b]):
        with builder.dataflow():
            first = builder.emit(relax.op.add(relax.op.matmul(x, w), b))
            hidden = builder.emit(relax.op.nn.relu(first))
            second = builder.emit(relax.op.nn.softmax(relax.op.matmul(hidden, w)))
            result = builder.emit_output(relax.op.add(second, first))
        builder.emit_func_output(result)
    return builder.get()


@relax.expr_functor.mutator
class _Wrong(relax.PyExprMutator):
    def visit_call_(self, call):
        call = super().visit_expr_post_order(call)
        wrong = call.op == tvm.ir.Op.get("relax.nn.relu")
        return relax.op.abs(call.args[0]) if wrong else call


@tvm.transform.module_pass(opt_level=0, name="ReluAway")
def relu_away(mod, context):
    mutator = _Wrong(mod)
    for var, function in mod.functions.items():
        mutator.builder_.update_func(var, mutator.visit_expr(function))
    return mutator.builder_.get()


def weights():
    draw = np.random.default_rng(0).standard_normal
    return {"w": draw((16, 16)).astype("float32"), "b": draw(16).astype("float32")}


passes = [
    relax.transform.CanonicalizeBindings(),
    relax.transform.FoldConstant(),
    relu_away,
    relax.transform.EliminateCommonSubexpr(),
]
with tvm.transform.PassContext(opt_level=3):
    bound = relax.transform.BindParams("main", weights())(model())
    relax.build(tvm.transform.Sequential(passes)(bound), tvm.target.Target({"kind": "llvm"}))
