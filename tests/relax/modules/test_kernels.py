"""Plans of memory, kernels that a file brings, and parts that branch or write into memory."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from answers import refused
from limits import ELEMENTWISE
from quick import QUICK
from relascope.core.errors import EngineError
from relascope.engine.faults.narrow import Start, extracted
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.faults import replay
from relascope.engine.relax.session import RelaxBackend, RelaxSession
from relascope.passes.catalogue import read_pipeline
from relascope.passes.memory_plan import memory_plan, plan_findings
from relascope.passes.pipeline import Pipeline
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.search.reduce import Piece, whole
from relax_modules import program

OVERLAP = (
    "Storage 1 holds two tensors at step 2: the float32[5, 6] that shift (step 2) writes "
    "overwrites the float32[5, 6] that scale (step 1) writes, which difference (step 3) uses last."
)


_KERNEL = """    @T.prim_func(s_tir=True, private=True)
    def {name}({given}out: T.Buffer((5, 6), "float32")):
        for i, j in T.grid(5, 6):
            with T.sblock("{name}"):
                a, b = T.axis.remap("SS", [i, j])
                out[a, b] = {value}

"""
_KERNELS = {
    "scale": "x[a, b] * T.float32(3)",
    "shift": "x[a, b] + T.float32(7)",
    "difference": "x[a, b] - y[a, b]",
}


def planned(offset):
    """A plan by hand; `offset` is of the second tensor in the storage."""
    text = "from tvm.script import ir as I, relax as R, tirx as T\n\n@I.ir_module\nclass Planned:\n"
    for name, value in _KERNELS.items():
        given = "".join(f'{n}: T.Buffer((5, 6), "float32"), ' for n in "xy" if f"{n}[" in value)
        text += _KERNEL.format(name=name, given=given, value=value)
    return f"""{text}    @R.function(pure=False)
    def main(x: R.Tensor((5, 6), "float32")) -> R.Tensor((5, 6), "float32"):
        cls = Planned
        storage = R.memory.alloc_storage(R.shape([240]), 0, "global", "float32")
        first = R.memory.alloc_tensor(storage, 0, R.shape([5, 6]), "float32", 0)
        _ = cls.scale(x, first)
        left = R.match_cast(first, R.Tensor((5, 6), "float32"))
        second = R.memory.alloc_tensor(storage, {offset}, R.shape([5, 6]), "float32", 0)
        _ = cls.shift(x, second)
        out = R.builtin.alloc_tensor(R.shape([5, 6]), "float32", 0)
        _ = cls.difference(left, second, out)
        return out
"""


def by(mod, *names):
    """A module after some of TVM's passes."""
    return tvm.transform.Sequential([getattr(relax.transform, n)() for n in names])(mod)


def plan_of(mod):
    graph = to_graph(RelaxProgram(mod, {}, ("x",), 1))[0]
    plan = memory_plan(graph)
    return plan, plan_findings(plan, graph)


@pytest.fixture
def stepped(tmp_path):
    """Steps a plan by hand in the engine."""

    def step(offset):
        path = tmp_path / f"planned_{offset}.relax"
        path.write_text(planned(offset), encoding="utf-8")
        session, source = RelaxSession(), ModelSource(str(path), kernels=True)
        pipeline = read_pipeline("relax", "LowerAllocTensor|KillAfterLastUse")
        records = session.step(source, pipeline, progress=silent)
        assert [r.error for r in records] == [None, None]
        return [session.verify(source, pipeline, at, progress=silent) for at in (-1, 0, 1)]

    return step


def test_a_storage_that_is_used_again_while_an_alias_lives_is_a_problem_of_every_step(stepped):
    assert stepped(0) == [(OVERLAP,)] * 3
    assert stepped(120) == [()] * 3


def test_tvms_plan_is_followed():
    def cast(x):
        scaled = x * relax.const(3, "float32")
        left = relax.BlockBuilder.current().match_cast(scaled, x.ty)
        return relax.op.exp(left - (x + relax.const(7, "float32"))) - x

    mod = program(cast, x=((5, 6), "float32"))
    mod = by(mod, "LegalizeOps", "ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite")
    plan, _ = plan_of(mod)
    assert [b for b, _ in plan.storages] == [120] * 5  # each tensor has its own
    mod = by(mod, "StaticPlanBlockMemory")
    plan, found = plan_of(mod)
    held = [(t.storage, t.write, t.end) for t in plan.tensors]
    assert found == [] and len(plan.storages) == 4
    for then in ("LowerAllocTensor", "KillAfterLastUse", "LowerRuntimeBuiltin", "VMShapeLower"):
        mod = by(mod, then)
        later, found = plan_of(mod)
        assert [(t.storage, t.write, t.end) for t in later.tensors] == held and found == []
        assert later.peak() == plan.peak() == (360, 2)


RUNS = []


@tvm.register_global_func("relascope.tests.canary")
def canary():
    RUNS.append(1)


@I.ir_module
class Own:
    @T.prim_func(private=True, s_tir=True)
    def twice(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.evaluate(T.call_packed("relascope.tests.canary"))
        for i in range(4):
            with T.sblock("twice"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Own
        with R.dataflow():
            y = R.call_tir(cls.twice, (R.const(np.ones(4, "float32")),), R.Tensor((4,), "float32"))
            z = R.add(x, y)
            R.output(z)
        return z


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(tvm.ir.save_json(Own), encoding="utf-8")
    RUNS.clear()
    return source_from_file(path)


@pytest.fixture
def session():
    return RelaxSession()


def test_they_are_shown_and_not_run(session, source):
    graph = session.load(source, progress=silent).graph
    assert [n.op for n in graph if n.op] == ["twice", "add"]
    assert "canary" in session.text(source, Pipeline(), -1, progress=silent)
    for text in ("FoldConstant", "fold", "cse"):
        (record,) = session.step(source, read_pipeline("relax", text), progress=silent)
        assert record.error.kind == "code" and "twice" in record.error.message
    for pipeline in (Pipeline(), read_pipeline("relax", "-cse")):
        with refused("code", "which is shown but not run"):
            session.check(BuildRequest(source, pipeline, QUICK), progress=silent)
    assert not RUNS


def test_they_run_where_somebody_said_so(session, source):
    allowed = replace(source, kernels=True)
    pipeline = read_pipeline("relax", session.pipelines(progress=silent).pipelines["target"])
    for last in range(len(pipeline)):
        request = BuildRequest(allowed, pipeline.upto(last), QUICK)
        assert all(c.max_rel == 0 for c in session.check(request, progress=silent))
    assert RUNS


def test_one_in_text_runs_where_somebody_said_so_and_calls_nothing(session, tmp_path):
    path, text = tmp_path / "own.relax", Own.script(show_meta=True)
    path.write_text(text)
    with pytest.raises(EngineError, match=r"as TVMScript: .*call_packed"):
        session.load(source_from_file(path), progress=silent)
    path.write_text("\n".join(x for x in text.splitlines() if "canary" not in x), encoding="utf-8")
    source = source_from_file(path)
    assert [n.op for n in session.load(source, progress=silent).graph if n.op] == ["twice", "add"]
    with refused("code", "which is shown but not run"):
        session.check(BuildRequest(source, Pipeline(), QUICK), progress=silent)
    request = BuildRequest(replace(source, kernels=True), Pipeline(), QUICK)
    assert session.check(request, progress=silent)[0].max_rel == 0


def test_a_function_that_a_type_is_inferred_by_is_tvms_own(session, tmp_path):
    path = tmp_path / "own.json"
    path.write_text(tvm.ir.save_json(Own).replace('"ir.IRModule"', '"ir.EnvFunc"', 1))
    with pytest.raises(EngineError, match="which is not allowed"):
        session.load(source_from_file(path), progress=silent)


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), up: R.Tensor((), "bool")) -> R.Tensor((2, 3)):
        ahead = R.tanh(x)
        if up:
            once = R.add(ahead, x)
            out = R.multiply(once, once)
        else:
            twice = R.exp(ahead)
            out = R.negative(twice)
        return R.sin(out)


def start(mod, *passes):
    with tvm.target.Target("llvm"):
        mod = by(mod, "Normalize", *passes)
    own = RelaxProgram(mod, {}, ("x", "up"), 1)
    return Start(RelaxBackend(), None, own, *to_graph(own), (), ())


def cut(begin, *ops, ends=None):
    graph = begin.graph
    nodes = tuple(n.id for n in graph if n.op in ops)
    outputs = tuple(n.id for n in graph if n.op in (ends or ops))
    return extracted(begin, Piece(nodes, outputs)).program


def run(part, *arrays):
    mod = part.mod
    names = [str(p.name) for p in mod["main"].params]
    made = replay.runner(mod, dict(zip(names, arrays, strict=True)), "llvm", False)
    made()
    return made.results()


X = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.5]], "float32")


@pytest.mark.parametrize("up", [True, False])
def test_a_branch_is_cut_inside_and_the_rest_of_it_is_an_argument(up):
    made = cut(start(Branches), "multiply", "if", ends=("if",))
    kinds = [str(p.ty.dtype) for p in made.mod["main"].params]
    assert sorted(kinds) == ["bool", "float32", "float32"]
    given = {"bool": [np.array(up)], "float32": [X, X + 1]}
    (found,) = run(made, *(given[k].pop(0) for k in kinds))
    sides = [X * X, (X + 1) * (X + 1), X, X + 1]
    assert any(np.array_equal(found, s) for s in (sides[:2] if up else sides[2:]))


def test_what_is_left_of_a_branch_stands_in_its_place_or_is_no_result():
    made = cut(start(Branches), "multiply", "exp")
    assert not any(isinstance(b.value, relax.If) for b in made.mod["main"].body.blocks[0].bindings)
    left, right = run(made, *[X] * len(made.mod["main"].params))
    assert np.array_equal(left, X * X) and np.allclose(right, np.exp(X), rtol=ELEMENTWISE)
    made = cut(start(Branches), "if", "add", ends=("if", "add"))
    assert made.outputs == 1


def test_a_kernel_that_writes_into_memory_is_cut_with_its_place_or_without_it():
    begin = start(Branches, "LegalizeOps", "RemovePurityChecking", "CallTIRRewrite")
    made = cut(begin, "tir_tanh")  # its place is an argument, and what it returns
    (found,) = run(made, *(X.copy() for _ in made.mod["main"].params))
    assert np.allclose(found, np.tanh(X), rtol=ELEMENTWISE)
    # It reads what others wrote.
    made = cut(begin, "tir_sin", "builtin.alloc_tensor", ends=("tir_sin",))
    found = run(made, *[X] * len(made.mod["main"].params))
    assert any(np.allclose(f, np.sin(X), rtol=ELEMENTWISE) for f in found)


def test_a_part_that_is_no_program_is_refused():
    begin = start(Branches)
    inner = [n.id for n in begin.graph if n.op == "add"]
    outer = [n.id for n in begin.graph if n.op == "if"]
    with pytest.raises(EngineError, match="cannot be cut out on its own"):
        extracted(begin, Piece((*inner, *outer), tuple(inner)))
    assert extracted(begin, whole(begin.graph)).program.outputs == 1
