"""Relax modules, from files and of one's own: the graphs that they give, and what is refused."""

import json
import tarfile

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from answers import refused
from gradients import hold_against_itself
from quick import QUICK
from relascope.core.errors import EngineError
from relascope.core.graph import Kind, TensorType
from relascope.engine.client import EngineClient
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource, parse_inputs, source_from_file
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.faults import replay
from relascope.engine.relax.frontend.modules import read_program
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import read_pipeline
from relascope.passes.pipeline import Pipeline
from relascope.passes.relax.ir.program import RelaxProgram
from relax_modules import program

WEIGHT = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4)


@I.ir_module
class Plain:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            moved = R.add(R.matmul(x, w), R.const([[1.0, 2.0, 3.0, 4.0]], "float32"))
            result = R.nn.softmax(R.tanh(R.reshape(moved, R.shape([2, 4]))), axis=-1)
            R.output(result)
        return result


@I.ir_module
class Open:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        parts = R.split(x, 2, axis=1)
        return (parts[0], R.multiply(parts[1], R.const(2.0, "float32")))


def saved(folder, suffix, mod=None):
    mod = Plain if mod is None else mod
    text = mod.script(show_meta=True) if suffix == "py" else tvm.ir.save_json(mod)
    (folder / f"mod.{suffix}").write_text(text)
    params = tvm.runtime.save_param_dict({"w": tvm.runtime.tensor(WEIGHT)})
    (folder / "mod.params").write_bytes(params)
    with tarfile.open(folder / "mod.tar", "w") as archive:
        for name in (f"mod.{suffix}", "mod.params"):
            archive.add(folder / name, name)
    return folder / "mod.tar"


def opened(folder, text, suffix="py"):
    (folder / f"mod.{suffix}").write_text(text)
    return read_program(folder / f"mod.{suffix}", ModelSource(f"mod.{suffix}"), silent)


@pytest.mark.parametrize("suffix", ["py", "json"])
def test_a_saved_module_gives_the_graph_of_the_live_one(tmp_path, suffix):
    found = read_program(saved(tmp_path, suffix), ModelSource("mod.tar"), silent)
    live = RelaxProgram(Plain, {"w": tvm.runtime.tensor(WEIGHT)}, ("x",), 1)
    assert to_graph(found.program)[0] == to_graph(live)[0]
    assert [n for n, _ in found.inputs] == ["x"]
    assert np.array_equal(found.tensors["w"].numpy(), WEIGHT)


@pytest.mark.parametrize("suffix", ["py", "json"])
def test_sizes_left_open_stay_open_or_are_given_by_inputs(tmp_path, suffix):
    saved(tmp_path, suffix, Open)
    path = tmp_path / f"mod.{suffix}"
    open_ = read_program(path, ModelSource(""), silent)
    assert "Open sizes: n. In a run each is 3" in open_.notes[0]
    assert dict(open_.inputs)["x"].shape == (3, 4)
    assert "n" in str(open_.program.main.params[0].ty)
    given = ModelSource("", inputs=parse_inputs("x=3x4:float32"))
    found = read_program(path, given, silent)
    assert [t.shape for t in found.outputs] == [(3, 2), (3, 2)]


def test_its_numbers_are_held_against_pytorchs_operators_and_gradients_against_itself(tmp_path):
    seen = hold_against_itself(RelaxSession(), saved(tmp_path, "json"), "w")
    assert {"matmul, as imported", "output 0, as imported"} < seen


HOSTILE = {
    "R.add(x, __import__('os').system('touch MARK'))": "not a Relax operator or type",
    "R.add(x, R.const.__globals__)": "not a Relax operator or type",
    "R._relax.tvm.ir.load_json('{}')": "not a Relax operator or type",
    "R.full(R.shape([9 ** 9 ** 9]), x)": "not allowed here",
    "R.add(x, [y for y in x])": "not allowed here",
    "R.add(x, 'a(1)')": "not a dtype",
    "R.add(x, tvm)": "not a variable",
    "R.nonsense(x)": "not a Relax operator or type",
}


@pytest.mark.parametrize("value", HOSTILE)
def test_nothing_of_a_script_is_evaluated(tmp_path, value):
    text = f"""
from tvm.script import ir as I
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        y = {value}
        return y
"""
    with pytest.raises(EngineError, match=HOSTILE[value]):
        opened(tmp_path, text.lstrip())


def test_code_in_json_is_refused_and_told(tmp_path):
    for name in ("runtime.Module", "node.AttrFunc"):
        text = f'{{"root_index": 0, "nodes": [{{"type": "{name}", "data": {{}}}}]}}'
        with pytest.raises(EngineError, match="has the type"):
            opened(tmp_path, text, "json")
    evil = relax.ExternFunc("evil")
    mod = program(lambda x: relax.Call(evil, [x], ty_args=[x.ty]), ((2, 4), "float32"))
    assert "evil" in opened(tmp_path, tvm.ir.save_json(mod), "json").program.code


def test_a_file_over_which_tvm_crashes_is_refused(tmp_path):
    document = json.loads(tvm.ir.save_json(Plain))
    binding = next(n for n in document["nodes"] if n["type"] == "relax.expr.VarBinding")
    binding["data"]["var"] = 0  # where None stands
    (tmp_path / "mod.json").write_text(json.dumps(document))
    crashes = r"it crashes its reader \(SIGSEGV\)"
    with EngineClient("relax") as client, pytest.raises(EngineError, match=crashes):
        client.call("load", source_from_file(tmp_path / "mod.json"))


def function(
    body="y = R.tanh(x)\n    return y", given='x: R.Tensor((2, 4), "float32")', name="main"
):
    return f"@R.function\ndef {name}({given}):\n    {body}\n"


def module(*functions):
    inner = "\n".join(functions).replace("\n", "\n    ")
    return f"from tvm.script import relax as R\n\n@I.ir_module\nclass Module:\n    {inner}\n"


EXTERN = 'R.call_packed("f", x, ty_args=(R.Tensor((2, 4), "float32"),))'


PAIR = 'x: R.Tuple(R.Tensor((2,), "float32"))'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (module(function("y = x[0]\n    return y", PAIR)), "its argument x is "),
        (module(function("y = R.tanh(x)\n    return ((y,), y)")), "not a tensor or a tuple of "),
        (module(function(name="a"), function(name="b")), 'It has no "main": a is shown, not b.'),
    ],
)
def test_what_cannot_be_run_is_shown_and_stepped(tmp_path, text, said):
    path = tmp_path / "mod.relax"
    path.write_text(text)
    session, source = RelaxSession(), ModelSource(str(path))
    assert said in " ".join(session.load(source, progress=silent).notes)
    steps = session.step(source, read_pipeline("relax", "LegalizeOps|FuseOps"), progress=silent)
    assert [s.error for s in steps] == [None, None]
    if "is shown" not in said:
        with pytest.raises(EngineError, match="can be shown and stepped, but not run"):
            session.check(BuildRequest(source, Pipeline(), QUICK), progress=silent)


def test_code_that_a_text_names_is_told(tmp_path):
    compiler = "R.func_attr({'Codegen': 'evil'})\n    return x"
    for body, named in {compiler: "the compiler evil", f"y = {EXTERN}\n    return y": "f"}.items():
        assert named in opened(tmp_path, module(function(body)), "relax").program.code


def test_what_is_no_module_of_relax_is_refused(tmp_path):
    with refused(says=" as a Relax module: "):
        opened(tmp_path, module(function("y = R.matmul(x, x)\n    return y")))


def test_an_ill_formed_module_is_shown_and_a_recursion_drawn_once(tmp_path):
    path = tmp_path / "mod.relax"
    path.write_text(module(function(f"y = {EXTERN}\n    return y")))  # a pure one has effects
    notes = RelaxSession().load(source_from_file(path), progress=silent).notes
    assert any(n.startswith("TVM says that it is not well-formed: ") for n in notes)
    inner = "cls = Module\n    y = cls.other(x)\n    return y"
    kind = 'x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"'
    path.write_text(module(function(inner, kind, "other"), function(inner, kind)))
    graph = RelaxSession().load(source_from_file(path), progress=silent).graph
    (call,) = [n for n in graph if n.body is not None]
    assert [n.op for n in call.body if n.op] == ["@other"]


def test_a_main_is_found_by_its_place_and_arguments_with_values_come_last(tmp_path):
    for text in (function(name="only"), module(function(name="only"))):
        found = opened(tmp_path, f"from tvm.script import relax as R\n\n{text}")
        assert [str(t) for t in found.outputs] == ["float32[2, 4]"]
    kinds = {"w": ((4, 4), "float32"), "x": ((2, 4), "float32")}
    mod = program(lambda w, x: relax.op.matmul(x, w), **kinds)
    found = read_program(saved(tmp_path, "json", mod), ModelSource(""), silent)
    assert [str(p.name) for p in found.program.main.params] == ["x", "w"]
    variable = relax.Var("x", relax.TensorType((2,), "float32"))
    with refused(says="not a module"):
        opened(tmp_path, tvm.ir.save_json(variable), "json")


DENSE = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 4), float32], %layer.w: Tensor[(4, 4), float32]) {
  add(nn.dense(%x, %layer.w, units=None), 1f)
}
"""


def test_relays_text_is_told_in_relax_or_refused(tmp_path, monkeypatch):
    found = opened(tmp_path, DENSE, "relay")
    assert found.notes[0].startswith("A Relay module, translated to ")
    assert [n for n, _ in found.inputs] == ["x", "layer.w"]
    given = {"x": np.ones((2, 4), "float32"), "layer.w": WEIGHT}
    run = replay.runner(found.program.mod, given, "llvm", False)
    run()
    assert np.allclose(run.results()[0], given["x"] @ WEIGHT.T + 1)
    deep = DENSE.replace("add(", "(" * 200_000)
    with refused("reader", r"TVM's own reader fails on it \(SIGSEGV\)"):
        opened(tmp_path, deep, "relay")
    monkeypatch.setenv("RELASCOPE_RELAY_TVM", str(tmp_path))
    with refused("engine", "has no package tvm"):
        read_program(tmp_path / "mod.relay", ModelSource("mod.relay"), silent)


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
