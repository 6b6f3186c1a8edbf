"""Files of strangers: nothing in hostile ones runs or touches a file, and honest ones open."""

import io
import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

import handwritten
import honest_models
from answers import refused
from hostile import _expression as with_size
from hostile import changed, crafted, honest, members, packed
from quick import rare
from relascope.core.errors import EngineError
from relascope.core.scratch import Scratch, sweep
from relascope.engine.files.archive import Archive
from relascope.engine.files.exported import is_expression
from relascope.engine.files.operators import allowed
from relascope.engine.files.torchscript import check_code
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
    assert not any(map(allowed, [*(f"aten::{name}" for name in aten.split()), *others.split()]))


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


FEW = {
    "ModulesCalledSelf": "export.pt2",
    "CausalAttention": "export.pt2",
    "AssertedMessage": "export.pt2",
    "ReturnsPartOfDataclass": "export.pt2",
    "TakesNamedDict": "dynamic.pt2",
    "TakesNumbers": "export.pt2",
    "TakesNamedTuple": "export.pt2",
    "Rotary": "trace.pt",
}
LATER = {"Vectorised", "CheckedItem", "Brain", "Double", "Branches", "Drawn", "ReturnsNumbers"}
"""What is refused for an operator or an output, once the file has been checked."""


class Refused(Exception):
    """Of an operator, an input or an output."""


EVIL = (
    "'); __import__('os').system('touch MARK'); ('",
    '"); open("MARK", "w"); ("',
    "{open('MARK', 'w')} %n %999999999d {0.__class__} \\N{BULLET} \\x00",
    "Pow(Integer(9), Pow(Integer(9), Integer(999999999)))",
    "\n  File \"/etc/passwd\", line 1, in forward\nimport os; os.system('touch MARK')",
    "</script><script>alert(1)</script>\x1b]0;title\x07\u202e\ufeff",
)


@pytest.fixture(autouse=True, scope="module")
def classes():
    honest_models._register()


def file_of(name, way, folder):
    made, inputs, named, dynamic = honest_models.CASES[name]
    torch.manual_seed(0)
    path, module = folder / f"{name}.{way}", made().eval()
    given = tuple(one() for one in inputs), {n: one() for n, one in named.items()}
    honest_models._save(module, *given, dynamic, way, path)
    return path, module, given


def check(name, way, folder):
    path, module, (args, named) = file_of(name, way, folder)
    try:
        model = load_model(source_from_file(path), lambda *_: None)
    except EngineError as error:
        raise (Refused if error.kind in ("operator", "input") else AssertionError)(error) from error
    tensors = iter(model.inputs)

    def given(before):  # a complex one is opened as pairs of numbers
        return torch.view_as_complex(next(tensors)) if before.is_complex() else next(tensors)

    args, named = pytree.tree_map_only(torch.Tensor, given, (args, named))
    torch.manual_seed(model.source.seed)
    with torch.no_grad():
        made = pytree.tree_leaves(module(*args, **named))
    expected = [t for t in made if isinstance(t, torch.Tensor)]
    assert next(tensors, None) is None
    for ours, theirs in zip(model.forward(), expected, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("name", FEW)
def test_an_honest_file(name, tmp_path):
    check(name, FEW[name], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", honest_models.CASES)
@pytest.mark.parametrize("way", ["trace.pt", "export.pt2", "dynamic.pt2"])
def test_every_honest_file(name, way, tmp_path):
    try:
        file_of(name, way, tmp_path)
    except Exception:  # whatever keeps PyTorch from writing it
        return
    if name in ("CheckedItem", "Drawn") and way == "trace.pt":
        load_model(source_from_file(tmp_path / f"{name}.{way}"), lambda *_: None)
    elif name in LATER or way == "trace.pt":
        with suppress(Refused):
            check(name, way, tmp_path)
    else:
        check(name, way, tmp_path)


@pytest.mark.parametrize("text", EVIL)
def test_what_an_assertion_says_is_not_evaluated(text, tmp_path, asserting):
    mark = tmp_path / "mark"

    def with_text(data):
        program = json.loads(data)
        (node,) = (n for n in program["graph_module"]["graph"]["nodes"] if "assert" in n["target"])
        node["inputs"][1]["arg"]["as_string"] = text.replace("MARK", str(mark))
        return json.dumps(program).encode()

    parts = members(asserting)
    parts["models/model.json"] = with_text(parts["models/model.json"])
    path = tmp_path / "model.pt2"
    path.write_bytes(packed(parts))
    load_model(source_from_file(path), lambda *_: None)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.fixture(scope="module")
def asserting():
    made, inputs, _, _ = honest_models.CASES["AssertedMessage"]
    file = io.BytesIO()
    torch.export.save(torch.export.export(made(), (inputs[0](),)), file)
    return file.getvalue()


def test_a_script_with_a_complex_number_is_a_traces_code(tmp_path):
    path, *_ = file_of("Complex", "script.pt", tmp_path)
    check_code(Archive(path))


def test_what_is_no_exported_program_of_ours_is_named(tmp_path):
    path, *_ = file_of("Vectorised", "export.pt2", tmp_path)
    with refused("operator", r"calls torch\._functorch") as error:
        load_model(source_from_file(path), lambda *_: None)
    assert "at the top, honest_models.py:" in error.value.where
    path = tmp_path / "old.pt2"
    path.write_bytes(packed({"serialized_exported_program.json": b"{}"}, folder=""))
    with refused(match=r"PyTorch 2\.7 or older"):
        load_model(source_from_file(path), lambda *_: None)
