"""A person's script that compiles a model with a pass of theirs, which is wrong: it takes relu for
abs."""

import numpy as np
import tvm
from tvm import relay


def model():
    x, w, b = (relay.var(n, shape=s) for n, s in (("x", (4, 16)), ("w", (16, 16)), ("b", (16,))))
    first = relay.nn.bias_add(relay.nn.dense(x, w), b)
    hidden = relay.nn.relu(first)
    result = relay.add(relay.nn.softmax(relay.nn.dense(hidden, w)), first)
    return tvm.IRModule.from_expr(relay.Function([x, w, b], result))


class _Wrong(relay.ExprMutator):
    def visit_call(self, call):
        call = super().visit_call(call)
        return relay.abs(call.args[0]) if call.op == relay.op.get("nn.relu") else call


@tvm.ir.transform.module_pass(opt_level=0, name="ReluAway")
def relu_away(mod, context):
    return tvm.IRModule.from_expr(_Wrong().visit(mod["main"]))


def weights():
    draw = np.random.default_rng(0).standard_normal
    return {"w": draw((16, 16)).astype("float32"), "b": draw(16).astype("float32")}


passes = [relay.transform.InferType(), relay.transform.SimplifyInference(), relu_away]
with tvm.transform.PassContext(opt_level=3):
    made = tvm.transform.Sequential([*passes, relay.transform.EliminateCommonSubexpr()])(model())
    relay.build(made, "llvm", params=weights())
