"""Pipelines as Python scripts: what they say, and that they do it."""

import ast
import os
import re
import subprocess
import sys

import pytest

from place import ROOT
from relascope.core.graph import TensorType
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.passes.catalogue import default_pipeline, read_pipeline, user
from relascope.viz.rows.script import step_script


def run(text, folder):
    (folder / "pipeline.py").write_text(text, encoding="utf-8")
    how = {"capture_output": True, "text": True, "timeout": 300}
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "pipeline.py"], cwd=folder, env=env, **how)


@pytest.mark.engine
@pytest.mark.exhaustive
@pytest.mark.parametrize("ir", ["relay", "relax"])
def test_an_exported_script_runs_alone(ir, tmp_path):
    """What it does is asked in each IR's own process (tests/both/examples.py)."""
    source = ModelSource("mlp", batch=4, training=True)
    done = run(step_script(ir, source, default_pipeline(ir, True)), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PyTorch in float32" in done.stdout.splitlines()[-1]


@pytest.mark.engine
@pytest.mark.exhaustive
def test_a_script_says_what_went_wrong(tmp_path, monkeypatch):
    own = ROOT / "tests/relax/support/faults.py"
    monkeypatch.setenv(user.VARIABLE, "")
    monkeypatch.setattr("relascope.passes.catalogue.CATALOGUE", dict(user.catalogue.CATALOGUE))
    user.name_files([str(own)])
    pipeline = read_pipeline("relax", "gelu_tanh|bind")
    text = step_script("relax", ModelSource("mlp"), pipeline)
    assert 'run.do("gelu_tanh")' in text
    assert f"name_files([{str(own)!r}])" in text
    done = run(text, tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1].startswith("WRONG: one tensor")


def test_what_is_at_its_default_is_not_said_and_a_files_name_is_text():
    pipeline = read_pipeline("relax", "cse|-bind|convert_layout(data=NCHW)")
    text = step_script("relax", ModelSource("bert_layer", tokens=8, dtype="float64"), pipeline)
    assert 'Stepwise("relax", ModelSource("bert_layer", tokens=8, dtype="float64"))' in text
    calls = re.findall(r"^((?:# )?run\.do\(.*?\))  #", text, re.M)
    assert calls == ['run.do("cse")', '# run.do("bind")', 'run.do("convert_layout", data="NCHW")']
    ast.parse(text)
    name = 'a"""\nimport os\n"""\r\\.pt'
    source = ModelSource(name, inputs=(("x", TensorType((2, 2), "float32")),))
    tree = ast.parse(step_script("relay", source, default_pipeline("relay", False), name))
    assert ast.get_docstring(tree) is not None
    assert not any(a.name == "os" for n in tree.body if isinstance(n, ast.Import) for a in n.names)
    assert name in [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]


def test_a_file_is_read_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.pt").write_bytes(b"a trace")
    source = source_from_file("own.pt", "x=3x12:float32\ny=scalar:int64", training=True, seed=3)
    assert source.inputs[1] == ("y", TensorType((), "int64"))
    text = step_script("relay", source, default_pipeline("relay", True), "own.pt")
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    (call,) = (ast.unparse(c) for c in calls if ast.unparse(c.func) == "source_from_file")
    assert eval(call, {"source_from_file": source_from_file}) == source
