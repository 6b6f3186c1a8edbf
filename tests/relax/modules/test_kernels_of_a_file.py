"""Kernels that a module's file brings: shown, and run only where somebody said so."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from answers import refused
from quick import QUICK
from relascope.core.errors import EngineError
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import source_from_file
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import read_pipeline
from relascope.passes.pipeline import Pipeline

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
    path.write_text(text, encoding="utf-8")
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
    text = tvm.ir.save_json(Own).replace('"ir.IRModule"', '"ir.EnvFunc"', 1)
    path = tmp_path / "own.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(EngineError, match="which is not allowed"):
        session.load(source_from_file(path), progress=silent)
