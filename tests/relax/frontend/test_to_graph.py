"""Relax functions that passes of one's own may make, as graphs."""

from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from relascope.core.graph import Kind, TensorType
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.passes.relax.ir.program import RelaxProgram


@I.ir_module
class Closure:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        @R.function
        def inner(y: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            z = R.add(x, y)
            return z  # noqa: RET504

        return inner(R.tanh(x))


@I.ir_module
class Foreign:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32"), n: R.Tensor(ndim=2, dtype="float32")):
        y = R.call_packed("some.function", x, ty_args=(R.Tensor((2, 4), "float32"),))
        z = R.call_dps_packed("other.function", (y,), out_ty=R.Tensor((2, 4), "float32"))
        return (z, n)


@I.ir_module
class Kernels:
    @T.prim_func(s_tir=True)
    def exp(x: T.Buffer((2, 4), "float32"), y: T.Buffer((2, 4), "float32")):
        for i, j in T.grid(2, 4):
            with T.sblock("each"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = x[a, b] * T.float32(2)

    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        cls = Kernels
        with R.dataflow():
            y = R.exp(R.call_tir(cls.exp, (x,), out_ty=R.Tensor((2, 4), "float32")))
            R.output(y)
        return y


def drawn(mod, inputs=("x",)):
    return to_graph(RelaxProgram(mod, {}, inputs, 1))[0]


def test_a_closure_reads_what_it_takes():
    graph = drawn(Closure)
    (closure,) = (n for n in graph if n.op == "closure")
    assert closure.kind is Kind.FUNCTION and [n.op for n in closure.body if n.op] == ["add"]
    assert [graph.by_id[i].title for i in closure.edges] == ["x"]


def test_functions_of_the_runtime_are_calls_by_their_names():
    graph = drawn(Foreign, ("x", "n"))
    calls = [n for n in graph if n.kind is Kind.CALL]
    assert [n.op for n in calls] == ["some.function", "other.function"]
    assert calls[1].attrs["call"] == "call_dps_packed"
    assert calls[1].edges == (calls[0].id,)
    (unknown,) = (n for n in graph if n.name == "n")
    assert unknown.outputs == (TensorType(("?", "?"), "float32"),)


def test_a_kernel_comes_with_its_text_before_and_after_it_is_told_where_to_write():
    graph = drawn(Kernels)
    assert [(n.op, n.kernel) for n in graph if n.op] == [("exp", "exp"), ("exp", "")]
    assert list(graph.kernels) == ["exp"] and "x[a, b] * T.float32" in graph.kernels["exp"]
    graph = drawn(relax.transform.CallTIRRewrite()(relax.transform.ToNonDataflow()(Kernels)))
    (call,) = (n for n in graph if n.kernel)
    assert call.attrs["writes"] == [1] and graph.by_id[call.inputs[1]].op == "builtin.alloc_tensor"
    assert "x[a, b] * T.float32" in graph.kernels["exp"]
