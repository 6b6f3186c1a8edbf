"""Code of a trace: what `torch.jit.save` writes is read, and nothing that runs as torch reads it.

Whoever wrote the crafted code had read the grammar. Each text tries to have torch compute something
while it loads the file, where our check of operators is not asked yet.
"""

import textwrap
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from answers import refused
from hostile import changed, members, packed
from relascope.engine.files.archive import Archive
from relascope.engine.files.torchscript import check_code
from relascope.engine.protocol.source import source_from_file
from relascope.engine.pytorch.model import load_model
from traces import save

WRITE = 'torch.save("x", "MARK")'
FILE = 'torch.from_file("MARK", True, 20, dtype=0)'

DEFAULTS = {
    "a call": f"({WRITE}, 1)[1]",
    "a call with a space": '((torch .save)("x", "MARK"), 1)[1]',
    "a call over lines": '((torch\n    .save)("x", "MARK"), 1)[1]',
    "getattr": '(getattr(torch, "save")("x", "MARK"), 1)[1]',
    "getattr of a part": '(getattr(ops, "aten").save("x", "MARK"), 1)[1]',
    "getattr with an escape": 'getattr(torch, "from\\137file")("MARK", True, 20, dtype=0)',
    "triple quotes": f'(""" " """, {WRITE}, 1)[2]',
    "single quotes": f"(' \" ', {WRITE}, ' \" ')[1]",
    "adjoining texts": f'("a" "b", {WRITE}, 1)[2]',
    "an operator that is no file's": "torch.add(1, 2)",
    "a conversion": 'int("1")',
    "an annotation": f"annotate(int, ({WRITE}, 1)[1])",
    "a device": f"torch.device(({WRITE}, 'cpu')[1])",
    "a dictionary": f"{{1: {WRITE}}}[1]",
    "a list": f"[{WRITE}, 1][1]",
    "a list of a loop": f"[{WRITE} for i in [1]]",
    "a choice": f"1 if {WRITE} else 2",
    "a comparison": f"1 == {WRITE}",
    "a sum": f"1 + {WRITE}",
    "a sign": f"-({WRITE})",
    "a subscript": "[1, 2][0]",
    "a function of the file": "__torch__.run(1)",
    "an object of the file": "__torch__.Run.__new__(__torch__.Run)",
    "a class of PyTorch": '__torch__.torch.classes.profiling.SourceRef("a")',
    "a constant's method": 'CONSTANTS.c0.save("MARK")',
    "a constant's part": "CONSTANTS.c0.data",
    "a text's method": '"x".save("MARK")',
    "a lambda": f"(lambda: {WRITE})()",
    "a process": "(fork(torch.save), 1)[1]",
    "a prefix": 'b"x"',
    "an f-string": f'f"{{{WRITE}}}"',
    "a keyword": f'torch.device(type="cpu", index={WRITE})',
    "a file": f"({FILE}, 1)[1]",
    "the other space": '(ops.aten.save("x", "MARK"), 1)[1]',
    "an alias": "torch",
    "nesting": "[" * 190 + "1" + "]" * 190,
}
PARTS = {
    "a constant": f"  k : Final[int] = ({WRITE}, 1)[1]",
    "a constant by getattr": '  k : Final[Tensor] = getattr(torch, "ones")([2])',
    "a type that is a text": '  k : "Tensor"',
    "a type that is called": f"  k : Optional[{WRITE}]",
    "a type of PyTorch's own": "  k : __torch__.torch.classes.profiling.SourceRef",
    "a type in annotations": f'  __annotations__["k"] = {WRITE}',
    "a key of annotations": f"  __annotations__[{WRITE}] = Tensor",
    "parameters": f"  __parameters__ = [{WRITE}, ]",
    "hooks": '  __forward_pre_hooks__ = ["hook", ]',
    "a statement": f"  {WRITE}",
    "a branch": f"  if True:\n    k : Final[int] = {WRITE}",
    "a class in it": f"  class A:\n    k : Final[int] = {WRITE}",
    "state": "  def __setstate__(self, k: Tensor) -> NoneType:\n    return None",
    "a method of Python's": "  def __bool__(self) -> bool:\n    return True",
    "a decorator": f"  @({WRITE})\n  def f(self) -> int:\n    return 1",
    "a comment of types": "  def f(self, k):\n    # type: (int) -> int\n    return k",
    "another self": "  def save(self, k: str) -> str:\n    return k\n"
    '  def f(k, self: Tensor) -> NoneType:\n    return self.save("MARK")',
    "a self that is replaced": "  def save(self, k: str) -> str:\n    return k\n"
    '  def f(self, k: Tensor) -> NoneType:\n    self = k\n    return self.save("MARK")',
    "a form feed": "  def f(self) -> int:\n\f    return 1",
    "a tab": "  def f(self) -> int:\n\treturn 1",
    "a continued line": "  def f(self) -> int:\n    return \\\n 1",
    "a return of carriage": "  def f(self) -> int:\r    return 1",
    "a semicolon": "  def f(self) -> int:\n    pass; return 1",
    "another alphabet": "  def f(self, ｔorch: int) -> int:\n    return 1",
}
FILES = {
    "a named tuple": f"class A(NamedTuple):\n  k : int = ({WRITE}, 1)[1]",
    "a named tuple of one": "class A(NamedTuple):\n  k : int = 1",
    "an enumeration": f"class A(Enum):\n  k = ({WRITE}, 1)[1]",
    "a method of an enumeration": "class A(Enum):\n  def f(self) -> int:\n    return 1",
    "an interface": f"class A(Interface):\n  def f(self, k: int=({WRITE}, 1)[1]) -> int:\n    pass",
    "a body of an interface": "class A(ModuleInterface):\n  def f(self) -> int:\n    return 1",
    "a function": f"def f(k: int=({WRITE}, 1)[1]) -> int:\n  return k",
    "a base": f"class A({WRITE}):\n  k : int",
    "another base": "class A(__torch__.B):\n  k : int",
    "a statement": WRITE,
    "an import of names": "from torch import save",
    "a variable": "save = 1",
    "an object's state": "class A:\n  def __getstate__(self) -> int:\n    return 1",
}
BODIES = {
    "a call": WRITE,
    "a file": FILE,
    "an operator that there is not": "k = torch.frobnicate(x)",
    "a name alone": "k = torch",
    "a name kept": "k = torch.save",
    "a space kept": "k = ops.aten",
    "a method": 'x.save("MARK")',
    "a method of a result": '(torch.relu(x)).save("MARK")',
    "a method kept": 'k = x.save\nk("MARK")',
    "a method in a builtin's name": 'int = x.save\nk = int("MARK")',
    "a function in a builtin's name": "sorted = __torch__.run\nk = sorted(x)",
    "a variable that is a function at first": 'k = __torch__.run\nk = x.save\nk("MARK")',
    "a result that is called": '(getattr(x, "save"))("MARK")',
    "getattr of a name": 'k = getattr(x, "save")',
    "a part that is called": 'k = [x.save][0]("MARK")',
    "gradients": "torch.autograd.backward(x)",
    "seeds": "k = torch.manual_seed(3)",
    "quantized": "k = ops.quantized.linear_unpack(x)",
    "an operator of Python's": "k = ^Sneaky()(x)",
    "an object of PyTorch's": "k = __torch__.torch.classes.profiling.SourceRef.__new__(x)",
    "a type that is called": f"k = annotate({WRITE}, x)",
    "classes": "k = torch.classes.quantized.relu(x)",
    "what an object of PyTorch's holds": "k = self.fc.capsule",
    "another in an object of PyTorch's": "self.fc.capsule = x",
    "an object's state": "k = self.fc.__getstate__()",
    "another state of an object": "k = self.fc.__setstate__(x)",
    "a hidden space": "torch = x",
    "a class": "class A:\n  k : int",
    "a loop over calls": f"for k in {WRITE}:\n  pass",
    "a message": f'assert True, "{WRITE}"',
    "a default": f"def k(a: int={WRITE}):\n  return a",
    "a long line": f"k = [{'1, ' * 200_000}]",
    "nesting": "k = x" + ".a" * 100,
}
_DEFAULT = "  def f(self, k: int={}) -> int:\n    return k"
_BODY = "  def f(self, x: Tensor) -> Tensor:\n{}\n    return x"
CRAFTED = {
    **{f"default: {n}": _DEFAULT.format(t) for n, t in DEFAULTS.items()},
    **{f"class: {n}": t for n, t in PARTS.items()},
    **{f"file: {n}": t for n, t in FILES.items()},
    **{f"body: {n}": _BODY.format(textwrap.indent(t, "    ")) for n, t in BODIES.items()},
}


def crafted(name, mark):
    """An honest file with a part of a class, or another definition, behind each of its classes."""
    more = f"\n{CRAFTED[name]}\n".encode()
    return changed(".pt", str(mark), parts={"*.py": lambda code: code.rstrip() + more})


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_code_is_refused_before_torch_reads_it(name, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(crafted(name, tmp_path / "mark"))
    with refused("file", r"is not code as torch writes it: line \d+ ") as got:
        check_code(Archive(path))
    assert "code/" in got.value.where


@pytest.mark.parametrize("member", ["code/__torch__/More.PY", "Code/__torch__/more.py"])
def test_code_is_found_as_torch_finds_it_whatever_the_case_of_its_name(member, tmp_path):
    path = tmp_path / "model.pt"
    text = f"class A:\n  k : Final[int] = {WRITE}\n"
    path.write_bytes(changed(".pt", str(tmp_path / "mark"), parts={member: text.encode()}))
    with refused(match="line 2 computes"):
        check_code(Archive(path))


class Pair(NamedTuple):
    total: Tensor
    words: dict[str, list[int]]


@torch.jit.script
def scaled_by_a_function_with_a_long_name(
    x: Tensor, by: float = -2.5, word: str = 'a"\t'
) -> Tensor:
    return x * by + len(word)


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Dropout(0.5))])
        self.parts = nn.ModuleDict({"a-b": nn.LSTM(4, 4)})
        self.register_buffer("ü", torch.ones(4))
        self.limit = 1e-5

    @torch.jit.export
    def more(self, x: Tensor, k: int = 2**62, z: complex = 1 + 2j, word: str = "é") -> list[str]:
        print("x", k)
        with torch.no_grad():
            values: list[list[float]] = x.tolist()
        return [str(values[0][0]) + word + ' torch.save(x) # """\'\\\n', "é"]

    def forward(self, x: Tensor, y: Tensor | None = None) -> Pair:
        for layer in self.layers:
            x = layer(x)
        part, _ = self.parts["a-b"](x)
        if y is None:
            y = torch.full([2, 4], float("-inf"), device=torch.device("cpu"))
        elif y.size(0) > 3:
            raise ValueError("no such torch.save")
        n = 0
        while n < 3 and bool(y.sum() < self.limit):
            n += 1
        total = scaled_by_a_function_with_a_long_name(part + y + float("nan"), 0.5)
        return Pair(total[..., 1:3], {"a": sorted([n, -1])})


def test_honest_scripts_and_old_versions_are_read(tmp_path):
    path, head = tmp_path / "model.pt", b"op_version_set = 1\nimport __torch__.torch\n"
    frozen = torch.jit.freeze(torch.jit.script(Scripted().eval()))
    for module in (Scripted(), Scripted().eval(), frozen):
        torch.jit.script(module).save(str(path))
        check_code(Archive(path))
    path.write_bytes(changed(".pt", "", parts={"*.py": lambda code: head + code}))
    load_model(source_from_file(path), lambda *_: None)


class Optional(nn.Module):
    weight: Tensor | None

    def __init__(self):
        super().__init__()
        self.weight = torch.ones(4)

    def forward(self, x):
        return x * torch.jit._unwrap_optional(self.weight)


def test_a_tensor_that_is_neither_parameter_nor_buffer_is_imported(tmp_path):
    path = tmp_path / "model.pt"
    torch.jit.script(nn.Sequential(Optional())).save(str(path))
    model = load_model(source_from_file(path, "input=2x4"), lambda *_: None)
    assert set(model.buffers) == set(model.flat.tensors) == {"0.weight"}


PACKED = {
    "another cell": (b"quantized_dynamic", b"quantized_dynamix", "its packed cell has no int8"),
    "another storage": (b"QInt8Storage", b"QUInt8Storage", "names torch.QUInt8Storage"),
    "another scheme": (b"per_tensor_affine", b"per_tensor_affin_", "names torch.per_tensor_affin_"),
    "a scheme by its number": (b"ctorch\nper_tensor_affine\n", b"K\x01", "not by quantize_dynamic"),
    "other strides": (b"K\x06K\x01t", b"K\x00K\x00t", "but not by quantize_dynamic"),
    "a plain tensor of it": (b"_rebuild_qtensor", b"_rebuild_tensor_v2", "without saying how"),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_weights_are_made_of_what_quantizing_makes_alone(name, tmp_path):
    module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(6, 5)), {nn.LSTM})
    save(module, torch.randn(4, 3, 6), path := tmp_path / "model.pt")
    check_code(Archive(path))
    old, new, said = PACKED[name]
    parts = members(path.read_bytes())
    assert old in parts["data.pkl"]
    parts["data.pkl"] = parts["data.pkl"].replace(old, new)
    path.write_bytes(packed(parts))
    with refused("file", said, where="model.pt: data.pkl"):
        check_code(Archive(path))


PARTED = b"\x80\x02c__torch__.torch\nclasses.quantized.LinearPackedParamsBase\n)\x81}b."


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: PARTED, "are not int8 weights of"),
        (lambda data: data.replace(b"ctorch\nFloatStorage\n", b"K\x07"), "4 values of 7"),
    ],
    ids=["a class of PyTorch's, parted elsewhere", "a storage of another type"],
)
def test_a_pickle_that_torch_would_take_for_another(change, said, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(changed(".pt", "", parts={"data.pkl": change}))
    with refused("file", r"its member 'data.pkl'", says=said):
        check_code(Archive(path))
