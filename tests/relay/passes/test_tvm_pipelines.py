"""What `relay.build` runs at each level, as steps."""

import pytest

from limits import OUTPUT
from quick import QUICK
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import read_pipeline
from relascope.passes.pipeline import Pipeline


@pytest.mark.parametrize(
    "level", ["O0", "O3", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("O2", "O4"))]
)
def test_every_step_of_a_level_is_drawn_and_has_numbers(session, level):
    source = ModelSource("mlp")
    text = session.pipelines(progress=silent).pipelines[level]
    pipeline = read_pipeline("relay", text)
    records = session.step(source, pipeline, progress=silent)
    assert [r.error for r in records] == [None] * len(pipeline)
    for index in (0, len(pipeline) // 2, len(pipeline) - 1):
        request = BuildRequest(source, pipeline.upto(index), QUICK)
        assert all(c.max_rel < OUTPUT for c in session.check(request, progress=silent))


def test_the_steps_are_those_that_tvm_runs_and_fuse_less_at_a_lower_level(session):
    found = session.pipelines(progress=silent).pipelines
    steps = {n: [s.name for s in Pipeline.parse(t)] for n, t in found.items()}
    assert [*found] == ["O0", "O1", "O2", "O3", "O4"]
    assert "AlterOpLayout" in steps["O3"] and "AlterOpLayout" not in steps["O2"]
    assert "FastMath" in steps["O4"] and "InferType" not in steps["O4"]
    assert "FuseOps(level=0)" in found["O0"] and "FuseOps|" in found["O3"]
    source, sizes = ModelSource("mlp"), {}
    for level in ("O0", "O3"):
        pipeline = read_pipeline("relay", session.pipelines(progress=silent).pipelines[level])
        at = [s.name for s in pipeline].index("FuseOps")
        sizes[level] = session.step(source, pipeline, progress=silent)[at].nodes
    assert sizes["O3"] < sizes["O0"]
