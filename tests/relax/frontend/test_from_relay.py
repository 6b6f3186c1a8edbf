"""Relay modules as JSON, told in Relax: each operator gives what Relay's own build gives."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from quick import QUICK
from relascope.core.errors import EngineError
from relascope.engine.in_process import load_engine
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.registry import REGISTRY
from relascope.engine.relax.frontend.modules import read_program
from relascope.passes.catalogue import info
from relascope.passes.pipeline import Pipeline

SUPPORT = Path(__file__).parents[2] / "support"
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("relay")
    subprocess.run([sys.executable, SUPPORT / "relay_programs.py", found], check=True)
    return found


def differences(path):
    """How what Relax makes of a program differs from what Relay made; "" where it does not."""
    arrays = np.load(path.with_suffix(".npz"))
    program = read_program(path, ModelSource(path.name), silent).program
    for step in Pipeline.parse(REGISTRY["relax"].live):
        program = info("relax", step).applied(program, step)
    inputs = {n: torch.from_numpy(arrays[f"in_{n}"]) for n in program.inputs}
    found = load_engine("relax").build(program, None, QUICK).forward(inputs)[0]
    wanted = [arrays[n] for n in arrays if n.startswith("out_")]
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        if str(ours.numpy().dtype) != str(theirs.dtype) or ours.shape != theirs.shape:
            return f"{ours.dtype}{list(ours.shape)} for {theirs.dtype}{list(theirs.shape)}"
        if not np.allclose(ours.numpy(), theirs, equal_nan=True, **CLOSE):
            return f"{ours.numpy().reshape(-1)[:8]} for {theirs.reshape(-1)[:8]}"
    return ""


def test_each_operator_gives_what_relay_gives(folder):
    paths = sorted(folder.glob("*.json"))
    wrong = {p.stem: difference for p in paths if (difference := differences(p))}
    assert len(paths) > 100
    assert not wrong


def test_all_that_has_no_counterpart_is_named(folder, tmp_path):
    document = json.loads((folder / "softmax.json").read_text())
    for node in document["nodes"]:
        if node.get("repr_str") == "nn.softmax":
            node["repr_str"] = "nn.fast_softmax"
    (tmp_path / "mod.json").write_text(json.dumps(document))
    with pytest.raises(EngineError, match=r"no counterpart here of nn\.fast_softmax\."):
        read_program(tmp_path / "mod.json", ModelSource("mod.json"), silent)
