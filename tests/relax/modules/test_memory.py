"""Plans of memory in Relax: one that overlaps, TVM's own, and branches."""

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import read_pipeline
from relascope.passes.memory_plan import memory_plan, plan_findings
from relascope.passes.relax.ir.program import RelaxProgram

OVERLAP = (
    "Storage 1 holds two tensors at step 2: the float32[5, 6] that shift (step 2) writes "
    "overwrites the float32[5, 6] that scale (step 1) writes, which difference (step 3) uses last."
)


@I.ir_module
class Planned:
    @T.prim_func(s_tir=True, private=True)
    def scale(x: T.Buffer((5, 6), "float32"), y: T.Buffer((5, 6), "float32")):
        for i, j in T.grid(5, 6):
            with T.sblock("scale"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = x[a, b] * T.float32(3)

    @T.prim_func(s_tir=True, private=True)
    def shift(x: T.Buffer((5, 6), "float32"), y: T.Buffer((5, 6), "float32")):
        for i, j in T.grid(5, 6):
            with T.sblock("shift"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = x[a, b] + T.float32(7)

    @T.prim_func(s_tir=True, private=True)
    def difference(
        x: T.Buffer((5, 6), "float32"),
        y: T.Buffer((5, 6), "float32"),
        z: T.Buffer((5, 6), "float32"),
    ):
        for i, j in T.grid(5, 6):
            with T.sblock("difference"):
                a, b = T.axis.remap("SS", [i, j])
                z[a, b] = x[a, b] - y[a, b]

    @R.function(pure=False)
    def main(x: R.Tensor((5, 6), "float32")) -> R.Tensor((5, 6), "float32"):
        cls = Planned
        storage = R.memory.alloc_storage(R.shape([240]), 0, "global", "float32")
        first = R.memory.alloc_tensor(storage, 0, R.shape([5, 6]), "float32", 0)
        _ = cls.scale(x, first)
        left = R.match_cast(first, R.Tensor((5, 6), "float32"))
        second = R.memory.alloc_tensor(storage, 120, R.shape([5, 6]), "float32", 0)
        _ = cls.shift(x, second)
        out = R.builtin.alloc_tensor(R.shape([5, 6]), "float32", 0)
        _ = cls.difference(left, second, out)
        return out


@I.ir_module
class Cast:
    @R.function
    def main(x: R.Tensor((5, 6), "float32")) -> R.Tensor((5, 6), "float32"):
        with R.dataflow():
            scaled = R.multiply(x, R.const(3, "float32"))
            left = R.match_cast(scaled, R.Tensor((5, 6), "float32"))
            last = R.subtract(R.exp(R.subtract(left, R.add(x, R.const(7, "float32")))), x)
            R.output(last)
        return last


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
        (4, 8), "float32"
    ):
        a = R.exp(x)
        if c:
            b = R.tanh(a)
            d = R.sin(b)
        else:
            e = R.cos(a)
            d = R.exp(e)
        return d


def plan_of(mod, inputs=("x",)):
    graph = to_graph(RelaxProgram(mod, {}, inputs, 1))[0]
    plan = memory_plan(graph)
    return plan, plan_findings(plan, graph)


@pytest.fixture
def stepped(tmp_path):
    """Steps a plan by hand in the engine; `offset` is of the second tensor in the storage."""

    def step(offset):
        path = tmp_path / f"planned_{offset}.relax"
        text = Planned.script(show_meta=True)
        assert text.count("(storage, 120,") == 1
        path.write_text(text.replace("(storage, 120,", f"(storage, {offset},"), encoding="utf-8")
        session, source = RelaxSession(), ModelSource(str(path), kernels=True)
        pipeline = read_pipeline("relax", "LowerAllocTensor|KillAfterLastUse")
        records = session.step(source, pipeline, progress=silent)
        assert [r.error for r in records] == [None, None]
        return [session.verify(source, pipeline, at, progress=silent) for at in (-1, 0, 1)]

    return step


def test_a_storage_that_is_used_again_while_an_alias_lives_is_a_problem_of_every_step(stepped):
    assert stepped(0) == [(OVERLAP,)] * 3
    assert stepped(120) == [()] * 3


def test_tvms_plan_is_followed_and_a_storage_of_the_other_branch_found():
    mod = tvm.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
        ]
    )(Cast)
    plan, _ = plan_of(mod)
    assert [b for b, _ in plan.storages] == [120] * 5  # each tensor has its own
    mod = relax.transform.StaticPlanBlockMemory()(mod)
    plan, found = plan_of(mod)
    held = [(t.storage, t.write, t.end) for t in plan.tensors]
    assert found == [] and len(plan.storages) == 4
    for then in ("LowerAllocTensor", "KillAfterLastUse", "LowerRuntimeBuiltin", "VMShapeLower"):
        mod = getattr(relax.transform, then)()(mod)
        later, found = plan_of(mod)
        assert [(t.storage, t.write, t.end) for t in later.tensors] == held and found == []
        assert later.peak() == plan.peak() == (360, 2)
    mod = Branches
    for name in ("LegalizeOps", "RemovePurityChecking", "CallTIRRewrite"):
        mod = getattr(relax.transform, name)()(mod)
    assert plan_of(mod, ("x", "c"))[1] == []
    _, found = plan_of(relax.transform.StaticPlanBlockMemory()(mod), ("x", "c"))
    assert found == [  # so plans TVM 0.27
        "Storage 2 is allocated in another branch of an `if` than the float32[4, 8] that tir_cos "
        "(step 4) writes, which uses it."
    ]
