"""Plans of memory in Relax: one that overlaps, and TVM's own."""

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

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
