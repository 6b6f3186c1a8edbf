"""A file's inputs: guessed, given, pinned, drawn, and saved ones, which are a stranger's files."""

import io
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import nn
from torch.export import Dim

from answers import quiet, refused
from engines import shared
from hostile import packed
from limits import ELEMENTWISE, GRADIENT
from quick import QUICK, rare
from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.files.tensors import read_tensors
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import (
    InputType,
    input_text,
    parse_inputs,
    parse_pins,
    source_from_file,
    with_tensors,
)
from relascope.engine.pytorch.exported_program import Exported
from relascope.engine.pytorch.inputs.tensors import assigned
from relascope.engine.pytorch.model import load_model, open_model
from relascope.passes.catalogue import default_pipeline
from traces import save as save_model


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.linear = nn.Embedding(50, 8), nn.Linear(8, 8)

    def forward(self, ids, mask):
        batch, tokens = ids.shape
        x = self.linear(self.words(ids))
        heads = x.reshape(batch, tokens, 2, 4).transpose(1, 2)
        scores = (heads @ heads.transpose(-1, -2)).masked_fill(~mask[:, None, None], -1e9)
        x = (scores.softmax(-1) @ heads).transpose(1, 2).reshape(batch, tokens * 8)
        return x + torch.zeros(batch, 1)


EXAMPLE = torch.arange(21).reshape(3, 7), torch.ones(3, 7, dtype=torch.bool)
SIZES = {0: Dim("batch", min=2, max=64), 1: Dim("tokens", max=128)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    torch.manual_seed(0)
    folder, module = tmp_path_factory.mktemp("inputs"), Words().eval()
    shapes = {"ids": SIZES, "mask": SIZES}
    program = save_model(module, EXAMPLE, folder / "words.pt2", dynamic_shapes=shapes)
    return {"pt": save_model(module, EXAMPLE, folder / "words.pt"), "pt2": program}


@pytest.fixture(scope="module")
def program(files):
    return Exported(files["pt2"])


def saved(folder, value, name="saved"):
    path = folder / name
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        torch.save(value, path)
    return path


def numpy_bytes(save, *args, **named):
    data = io.BytesIO()
    save(data, *args, **named)
    return data.getvalue()


@pytest.mark.parametrize("kind", ["pt", rare("pt2")])
def test_what_a_file_says_of_its_inputs_is_drawn(kind, files):
    opened = open_model(source_from_file(files[kind], seed=3), quiet)
    ids, mask = opened.inputs
    assert opened.given.inputs == ("ids=3x7:int64:0..49", "mask=3x7:bool")
    assert "50 rows" in opened.given.says[0] and int(ids.max()) > 20 and int(ids.min()) >= 0
    # Whoever says by a mask what is open or what is closed has an open key in each row.
    assert bool(mask.any(-1).all()) and not bool(mask.all(-1).any())
    texts = "\n".join(opened.given.inputs)
    again = open_model(source_from_file(files[kind], texts, seed=3), quiet)
    assert all(map(torch.equal, again.inputs, opened.inputs))


def test_the_range_of_integers_that_is_given_is_drawn_and_a_model_is_no_tensors(files):
    source = source_from_file(files["pt"], "ids=3x7:int64:4..6, mask=3x7:bool")
    ids, _ = open_model(source, quiet).inputs
    assert set(ids.flatten().tolist()) == {4, 5, 6}
    with pytest.raises(EngineError, match="ids contains 50, but the model uses it to look up 50"):
        open_model(source_from_file(files["pt"], "ids=3x7:int64:0..50, mask=3x7:bool"), quiet)
    with pytest.raises(EngineError, match="a TorchScript model"):
        read_tensors(files["pt"])


def test_a_type_is_read_as_it_is_written():
    text = "ids=1x14:int64:0..30521, x=2x3:float16, scalar:int8:-128..127"
    kinds = parse_inputs(text)
    assert kinds[0] == ("ids", InputType((1, 14), "int64", 0, 30521))
    assert kinds[1] == ("x", TensorType((2, 3), "float16"))
    assert ", ".join(input_text(*kind) for kind in kinds) == text
    assert parse_inputs("1x14:float32, ids=2x3:int64; scalar\nlast = 4 x 5") == (
        ("", TensorType((1, 14), "float32")),
        ("ids", TensorType((2, 3), "int64")),
        ("", TensorType((), "float32")),
        ("last", TensorType((4, 5), "float32")),
    )
    assert parse_inputs("  ") == ()
    assert parse_pins("x.0=4, s77 = 5\n") == (("x.0", 4), ("s77", 5))


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (parse_inputs, "x=2:float32:0..3", "only integers"),
        (parse_inputs, "x=2:int8:0..128", "0..128 is not a range of int8"),
        (parse_inputs, "x=2:int64:5..4", "5..4 is not a range"),
        (parse_inputs, "x=2:int64:0..9999999999999999999", "is not a range"),
        (parse_inputs, f"x={'9' * 5000}", "Cannot read"),
        *((parse_inputs, text, "Cannot read") for text in ("axb", "1x-2", "1 2")),
        (parse_inputs, "1x14:float31", "is not a dtype"),
        (parse_inputs, "x=1,x=2", "Two"),
        (parse_pins, "x.0=-4", "Cannot read the size"),
        (parse_pins, "x.0=4, x.0=4", "Two sizes"),
        (parse_pins, f"x.0={'9' * 5000}", "Cannot read the size"),
    ],
)
def test_what_is_no_type_and_no_size_is_told(read, text, message):
    with refused("input", message):
        read(text)


def test_the_sizes_that_a_program_leaves_open_are_pinned(files):
    example = open_model(source_from_file(files["pt2"]), quiet)
    assert [tuple(t.shape) for t in example.inputs] == [(3, 7), (3, 7)]
    sizes = {one.places: (one.size, one.least, one.most) for one in example.given.sizes}
    assert sizes == {("ids.0", "mask.0"): (3, 2, 64), ("ids.1", "mask.1"): (7, 1, 128)}
    symbol = example.given.sizes[1].symbol
    by_place = source_from_file(files["pt2"], pins=f"mask.0=5, {symbol}=4")
    model = load_model(by_place, quiet)
    assert [tuple(t.shape) for t in model.inputs] == [(5, 4), (5, 4)]
    module = Words().eval()
    module.load_state_dict({n: p for n, p in model.module.named_parameters()})
    assert torch.allclose(model.forward()[0], module(*model.inputs), atol=ELEMENTWISE)
    by_shape = source_from_file(files["pt2"], "ids=5x4:int64")
    assert torch.equal(open_model(by_shape, quiet).inputs[0], model.inputs[0])


def test_a_size_of_which_others_are_multiples(tmp_path):
    class Halves(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] // 2, 2, -1).sum(1)

    path, rows = tmp_path / "halves.pt2", Dim("rows", min=2, max=64)
    save_model(Halves(), (torch.ones(6, 4),), path, dynamic_shapes={"x": {0: 2 * rows}})
    (size,) = Exported(path).sizes
    assert (size.size, size.least, size.most) == (3, 2, 64) and size.places[0].startswith("x.0 = 2")
    for pins in ("x.0=10", f"{size.symbol}=5"):
        assert load_model(source_from_file(path, pins=pins), quiet).inputs[0].shape == (10, 4)
    with pytest.raises(EngineError, match=r"x\.0 is 7, but the program takes 2"):
        load_model(source_from_file(path, pins="x.0=7"), quiet)


def test_a_number_that_a_program_leaves_open_is_pinned(tmp_path):
    class First(nn.Module):
        def forward(self, x, count, scale):
            return x[:, :count].sum(1) * count * scale

    path, shapes = tmp_path / "first.pt2", {"x": None, "count": Dim.DYNAMIC, "scale": None}
    given = torch.ones(2, 6), 3, 0.5
    save_model(First(), given, path, dynamic_shapes=shapes)
    (size,) = open_model(source_from_file(path), quiet).given.sizes
    assert (size.size, size.places) == (3, ("count",))
    for pins, count in (("", 3), ("count=5", 5)):
        model = load_model(source_from_file(path, pins=pins), quiet)
        assert model.input_names == ("x",)
        assert torch.allclose(model.forward()[0], First()(*model.inputs, count, 0.5))
    with pytest.raises(EngineError, match=r"\(count\) is 7, but the program takes 1 to 6"):
        load_model(source_from_file(path, pins="count=7"), quiet)


@pytest.mark.parametrize(
    ("inputs", "pins", "message"),
    [
        ("", "ids.0=65", r"\(ids.0, mask.0\) is 65, but the program takes 2 to 64"),
        ("", "ids.0=1", "is 1, but the program takes 2 to 64"),
        ("", "ids.0=4, mask.0=5", r"ids.0 makes s\d+ 4, and mask.0 makes it 5"),
        ("", "batch=4", "no open size 'batch'"),
        ("", "ids.7=4", "no open size 'ids.7'"),
        ("ids=4:int64", "", "has 1 dimensions, not 2"),
        ("ids=4x7", "", "given as float32, but the program takes int64"),
        ("word=4x7:int64", "", "no input 'word'"),
        ("ids=65x7:int64", "", "takes 2 to 64"),
    ],
)
def test_a_size_or_type_that_a_program_does_not_take(inputs, pins, message, program):
    with refused("input", message) as caught:
        program.pinned(parse_pins(pins), assigned(parse_inputs(inputs), ["ids", "mask"]), {})
    assert caught.value.where


def test_saved_tensors_of_every_format_are_the_inputs(files, tmp_path):
    ids, mask = torch.full((2, 5), 7), torch.ones(2, 5, dtype=torch.bool)
    arrays = {"ids": ids.numpy().astype(np.int32), "mask": mask.numpy()}
    formats = {
        "a.npz": numpy_bytes(np.savez_compressed, **arrays),
        "b.npz": numpy_bytes(np.savez, *arrays.values()),
        "c.safetensors": save({"mask": mask, "ids": ids}),
        "d.pt": {"ids": ids, "mask": mask},
        "e.pt": [ids, mask],
    }
    source = source_from_file(files["pt"])
    for name, value in formats.items():
        opened = open_model(with_tensors(source, [saved(tmp_path, value, name)]), quiet)
        assert all(map(torch.equal, opened.inputs, (ids, mask))), name
        assert opened.given.says == (f"saved in {name}",) * 2


@pytest.mark.exhaustive
def test_sizes_are_those_of_what_is_saved(files, tmp_path):
    ids = torch.full((2, 5), 7, dtype=torch.int32)
    path = saved(tmp_path, numpy_bytes(np.save, ids.numpy()))
    opened = open_model(with_tensors(source_from_file(files["pt2"]), [path]), quiet)
    assert torch.equal(opened.inputs[0], ids.long()) and opened.inputs[1].shape == (2, 5)
    path = saved(tmp_path, {"ids": torch.ones(65, 7, dtype=torch.long)})
    with pytest.raises(EngineError, match="takes 2 to 64"):
        open_model(with_tensors(source_from_file(files["pt2"]), [path]), quiet)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"word": torch.ones(3, 7)}, "no input 'word'"),
        ({"ids": torch.ones(3, 7) / 2}, r"ids is saved as float32\[3, 7\], but the model takes in"),
        ({"ids": torch.full((3, 7), 50)}, "ids contains 50, but the model uses it to look up 50"),
        ({"ids": torch.full((3, 7), -1)}, "ids contains -1"),
        ({"mask": torch.full((3, 7), 2)}, "takes bool"),
        ([torch.ones(1)] * 3, r"takes 2 inputs \(ids, mask\), not 3"),
    ],
)
def test_saved_tensors_that_are_no_such_inputs(value, message, files, tmp_path):
    with refused("input", message) as caught:
        open_model(with_tensors(source_from_file(files["pt"]), [saved(tmp_path, value)]), quiet)
    assert caught.value.where


def header(shape, descr="<f4"):
    data = io.BytesIO()
    head = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(data, head)
    return data.getvalue()


CODE_IN_HEADER = b"\x93NUMPY\x01\0\x20\0" + b"__import__('os').abort()".ljust(32)
HOSTILE = {
    "objects": (numpy_bytes(np.save, np.array([{}], object)), "array of objects"),
    "fields": (numpy_bytes(np.save, np.zeros(2, [("a", int)])), "no input can be"),
    "texts": (numpy_bytes(np.save, np.array(["a"])), "no input can be"),
    "no bytes": (header((2**40, 2**20)), "in .* bytes"),
    "negative": (header((-1, -4)) + bytes(16), "in .* bytes"),
    "code in a header": (CODE_IN_HEADER, "an invalid array header"),
    "bomb": (packed({"a.npy": header((2**27,)) + bytes(2**29)}, 8, ""), "MiB of tensors in a s"),
    "not all arrays": (packed({"a.npy": header((1,)) + bytes(4), "b.py": b"1"}, 8, ""), "not in a"),
    "pickle": (pickle.dumps([1]), "is not a .npy"),
    "long header": ((2**50).to_bytes(8, "little") + b"{}", "header of more than"),
    "short": (save({"x": torch.ones(4)})[:-8], "cannot be parsed"),
    "offsets": (save({"x": torch.ones(4)}).replace(b"[0,16]", b"[0,99]"), "cannot be parsed"),
    "empty": (b"", "is not a .npy"),
    "nothing": (save({}), "no tensor"),
    "no elements": (save({"x": torch.ones(0)}), "without elements"),
    "a number": ({"x": 1}, "a int, which is not a tensor"),
    "nested": ([[torch.ones(1)]], "a list, which is not a tensor"),
    "sparse": ({"x": torch.eye(2).to_sparse()}, "not plain"),
    "complex": ({"x": torch.ones(2, dtype=torch.complex64)}, "no input can be"),
    "expanded": ({"x": torch.ones(1).expand(2**40)}, "MiB of tensors in a smaller file"),
    "object": ({"x": TensorType((), "a")}, "names relascope.core.graph.TensorType"),
    "named by a number": ({1: torch.ones(1)}, "has a int as a tensor's name"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_of_tensors_that_is_refused(name, tmp_path):
    value, message = HOSTILE[name]
    with refused("file", message) as caught:
        read_tensors(saved(tmp_path, value, "file.x"))
    assert "file.x" in caught.value.where and len(caught.value.message) < 400


def checked(ir, source):
    pipeline = default_pipeline(ir, source.training)
    found = shared(ir).call("check", BuildRequest(source, pipeline, QUICK))
    assert found and None not in [c.max_abs for c in found]
    assert all(c.max_abs < GRADIENT * max(1.0, c.scale) for c in found)


PINS = ("ids.0=5", "ids.0=2", "ids.0=64, ids.1=1", "ids.0=5, ids.1=128")
SIZED = [(ir, pins) for ir in ("relax", "relay") for pins in PINS]


@pytest.mark.parametrize(("ir", "pins"), [SIZED[0], *(rare(*s) for s in SIZED[1:])])
def test_an_export_at_another_size_is_right(ir, pins, files):
    checked(ir, source_from_file(files["pt2"], pins=pins))
