"""Files of researchers: the checks that keep out a stranger's code refuse none of them."""

import io
import json
from contextlib import suppress

import pytest
import torch
from torch.utils import _pytree as pytree

import honest_models
from answers import refused
from hostile import members, packed
from relascope.core.errors import EngineError
from relascope.engine.files.archive import Archive
from relascope.engine.files.torchscript import check_code
from relascope.engine.protocol.source import source_from_file
from relascope.engine.pytorch.model import load_model

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
