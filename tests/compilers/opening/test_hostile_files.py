"""Files of strangers: nothing in them runs or touches a file, and a sentence says why."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import handwritten
from answers import refused
from hostile import Small, changed, crafted, honest, members
from hostile import _expression as with_size
from quick import rare
from relascope.core.errors import EngineError
from relascope.core.scratch import Scratch, sweep
from relascope.engine.files.exported import PROGRAM, is_expression
from relascope.engine.files.operators import allowed
from relascope.engine.protocol.source import source_from_file
from relascope.engine.pytorch.exported_program import Exported
from relascope.engine.pytorch.model import load_model

LONG = ("bomb in data/0", "bomb in models", "many members", "nested tuples", "2,000,000 numbers")
LONG += ("the size (s0 + s1)**9", "spec: 100,000 leaves")
"""What takes seconds begins so."""
FILES = {f"{n} {k}": (k, m) for n, k, m in crafted()}
FILES |= {
    f"{n} {k}": (k, lambda mark, m=m: m(Path(mark).parent))
    for n, k, m, command in handwritten.crafted()
    if command == handwritten.GRAPH and k in (".pt", ".pt2") and n not in handwritten.LONG
}
OPENED = {
    "members above .pt",
    "2,000,000 numbers .pt",
    "no device .pt2",
    "empty weight .pt2",
    "spec: class with inputs .pt2",
}


@pytest.mark.parametrize("name", [rare(n) if n.startswith(LONG) else n for n in FILES])
def test_a_crafted_file(name, tmp_path):
    kind, make = FILES[name]
    path, mark = tmp_path / f"model{kind}", tmp_path / "mark"
    path.write_bytes(make(str(mark)))
    said = None
    try:
        load_model(source_from_file(path), lambda *_: None)
    except EngineError as error:
        said = error
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert (said is None) == (name in OPENED)
    if said is not None:
        assert said.kind in ("file", "input", "operator")
        assert path.name in said.where or said.kind != "file"
        assert not re.search(r"ASSERT|frame #|csrc/|\.cpp:|std::|Traceback", said.message)


def test_what_opens_is_there_and_sessions_can_be_made(tmp_path):
    made = [make(tmp_path) for _, kind, make, _ in handwritten.crafted() if kind == ".zip"]
    assert len({*made}) == len(made) > 1 and all(data.startswith(b"PK") for data in made)
    assert set(OPENED) <= set(FILES)


@pytest.mark.parametrize("kind", [".pt", ".pt2"])
def test_honest_files_open(kind, tmp_path):
    path = tmp_path / f"model{kind}"
    path.write_bytes(honest(kind))
    model = load_model(source_from_file(path), lambda *_: None)
    shapes = {n: tuple(p.shape) for n, p in model.parameters.items()}
    assert shapes == {"fc.weight": (4, 4), "fc.bias": (4,)}


def test_an_export_with_dynamic_sizes_is_read(tmp_path):
    path, x = tmp_path / "model.pt2", torch.ones(4, 4)
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(Small().eval(), (x,), dynamic_shapes={"x": {0: 2 * rows}})
    torch.export.save(program, path)
    assert b'"expr_str": "Mul(Integer(2), Symbol(' in members(path.read_bytes())[PROGRAM]
    (one,) = Exported(path).inputs
    assert one.name == "x" and one.type.shape[0].startswith("2*")


@pytest.mark.parametrize("size", ["Integer(1)/0", "Mod(5, 0)", "oo - oo", "Max()", "s0 & 3"])
def test_sizes_that_come_to_no_number_are_named(size, tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(changed(".pt2", "", parts=with_size(size)))
    with refused(match="has impossible sizes: ", says=f"[{size}, 4]"):
        Exported(path)


def test_a_name_that_is_not_utf_8(tmp_path):
    path = Path(str(tmp_path), "\udcff.pt")
    path.write_bytes(honest(".pt"))
    with refused(match="name is not UTF-8"):
        load_model(source_from_file(path), lambda *_: None)


EXPRESSIONS = (
    *("s0", "2*s77", "s0**2 + 3", "s0 >= 2", "Max(1, FloorDiv(s0 - 1, 2))"),
    "Pow(Symbol('s0', positive=True, integer=True), Integer(2))",
    "FloatPow(ToFloat(Symbol('s0', positive=True)), Float('-0.5', precision=53))",
    "Piecewise(ExprCondPair(Integer(1), s0 > 3), ExprCondPair(Integer(2), true))",
    "Mul(Float('0.5', precision=53), Symbol('s0', integer=True))",
    "RoundDecimal(Symbol('s0'), -2)",
)
NO_EXPRESSIONS = (
    *("Float('1.5', precision=4000000000)", "Float('1.5e-999999999', precision=53)"),
    "FloatPow(Float('9.5', precision=53), Float('99999999.5', precision=53))",
    *("PowByNatural(Integer(9), Symbol('s0'))", "Symbol('s0', positive=4000000000)"),
    *("Symbol('__import__')", "Symbol('s0').name", "Symbol(**s0)", "os.system('s0')"),
    *("Pow(Integer(9), Pow(Integer(9), Integer(9)))", "Integer(9)**Integer(9)**Integer(9)"),
    *("(s0 := 3)", "s0 if s0 else s1", "Float('0.5', precision=4000000000)"),
    *("Float('0.5', 4000000000)", "RoundDecimal(Symbol('s0'), Integer(4000000000))"),
)


@pytest.mark.parametrize("text", EXPRESSIONS + NO_EXPRESSIONS)
def test_expressions_of_sizes(text):
    assert is_expression(text) == (text in EXPRESSIONS)


def test_operators_that_reach_outside_are_refused():
    assert all(map(allowed, ("aten::linear", "aten::gelu", "prim::ListConstruct")))
    aten, others = "save from_file wait set_", "prim::Print prim::rpc_async c10d::send"
    kinds = [*(f"aten::{name}" for name in aten.split()), *others.split()]
    assert not any(map(allowed, kinds))


def test_folders_that_nobody_has_any_more_are_cleared_away(tmp_path, monkeypatch):
    code = "import os; from relascope.core.scratch import Scratch; s = Scratch(); os._exit(9)"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len([*tmp_path.iterdir()]) == 1
    sweep.cache_clear()
    mine = Scratch()
    assert [p.name for p in tmp_path.iterdir()] == [Path(mine.name).name]
    mine.cleanup()
    assert not [*tmp_path.iterdir()]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name, age in (("relascope-old", 7200), ("relascope-new", 0), ("relascope-mine", 7200)):
        folder = tmp_path / name
        folder.mkdir()
        if name == "relascope-mine":
            (folder / "file").touch()
        os.utime(folder, (time.time() - age,) * 2)
    sweep.cache_clear()
    sweep()
    assert {p.name for p in tmp_path.iterdir()} == {"relascope-new", "relascope-mine"}
