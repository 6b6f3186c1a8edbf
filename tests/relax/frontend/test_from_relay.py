"""Relay modules as JSON, translated to Relax: each operator gives what Relay's own build gives."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from answers import refused
from limits import OUTPUT, close
from once import made_once
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
CLOSE = close(OUTPUT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    program = [sys.executable, SUPPORT / "relay_programs.py"]
    return made_once(
        tmp_path_factory, "relay", lambda place: subprocess.run([*program, place], check=True)
    )


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
    text = (folder / "softmax.json").read_text().replace('"nn.softmax"', '"nn.fast_softmax"')
    (tmp_path / "mod.json").write_text(text)
    with pytest.raises(EngineError, match=r"in Relax is known for nn\.fast_softmax\."):
        read_program(tmp_path / "mod.json", ModelSource("mod.json"), silent)


def changed(path, folder, change):
    document = json.loads(path.read_text())
    change(document["nodes"], document)
    (folder / "mod.json").write_text(json.dumps(document))
    return folder / "mod.json"


def first(nodes, kind):
    return next(n for n in nodes if n["type_key"] == kind)


def attributes(name, **changes):
    return lambda nodes, _: first(nodes, f"relay.attrs.{name}Attrs")["attrs"].update(changes)


def untyped(nodes, document):
    for node in nodes:
        if node["type_key"] == "relay.Call":
            node["attrs"]["_checked_type_"] = "0"


def open_size(nodes, document):
    shape = nodes[int(first(nodes, "relay.TensorType")["attrs"]["shape"])]
    nodes[shape["data"][0]] = {"type_key": "tir.Any", "attrs": {"span": "0"}}


def two_functions(nodes, document):
    functions = nodes[int(first(nodes, "IRModule")["attrs"]["functions"])]
    nodes.append({"type_key": "runtime.String", "repr_str": "second"})
    var = json.loads(json.dumps(nodes[functions["data"][0]]))
    var["attrs"]["name_hint"] = str(len(nodes) - 1)
    nodes.append(var)
    functions["data"] += [len(nodes) - 1, functions["data"][1]]


def no_module(nodes, document):
    document["root"] = nodes.index(first(nodes, "relay.Call"))


def free_variable(nodes, document):
    nodes[int(first(nodes, "relay.Function")["attrs"]["params"])]["data"].pop()


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("softmax", untyped, "its types are not inferred"),
        ("softmax", open_size, "it leaves sizes open"),
        ("softmax", two_functions, "it has 2 functions"),
        ("softmax", no_module, "it holds no module"),
        ("add", free_variable, "a variable that nothing binds"),
        ("take", attributes("Take", mode="x"), "take"),
        ("pad", attributes("Pad", pad_mode="x"), "mode"),
        (
            *("mean over some", attributes("Reduce", keepdims="0")),
            "returns float32[3] in Relax, but float32[1, 3, 1] in Relay",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_by_its_reason(folder, tmp_path, name, change, why):
    path = changed(folder / f"{name}.json", tmp_path, change)
    with refused(says=why, hint="Choose the engine Relay"):
        read_program(path, ModelSource("mod.json"), silent)
