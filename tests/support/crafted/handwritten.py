"""Files by somebody who has read what checks them: each tries to run code, to make a file, to read
another, or to take all time or memory, by a way that the grammars might have forgotten.

`MARK`, in a text, stands for a file beside it that nothing may make."""

import json
from functools import partial
from itertools import pairwise

import numpy as np

import hostile
import hostile_onnx as onnx

SCRIPT = "<script>alert(1)</script>"
# Traces ---------------------------------------------------------------------------------------

_FILE = 'torch.from_file("MARK", True, 64, dtype=0)'
_METHODS = {
    "a default": f"(self, y: Tensor={_FILE}) -> int:\n    return 1",
    "a default in a tuple": f"(self, y: Tensor=(1, {_FILE})[1]) -> int:\n    return 1",
    "a default by getattr": '(self, y: int=getattr(torch, "save")(1, "MARK")) -> int:\n    pass',
    "a name in escapes": '(self) -> int:\n    return getattr(torch, "from\\137file")("MARK", 1, 9)',
    "an f-string": f'(self) -> str:\n    return f"{{{_FILE}}}"',
    "triple quotes": f'(self) -> int:\n    """ " """\n    {_FILE}\n    return 1',
    "a comment": f"(self) -> int:\n    # \\\n    {_FILE}\n    return 1",
    "joined lines": '(self) -> Tensor:\n    return torch.from\\\n_file("MARK", True, 64)',
    "a lambda": f"(self) -> int:\n    g = lambda: {_FILE}\n    return 1",
    "letters of full width": '(self) -> Tensor:\n    return torch.\uff46rom_file("MARK", True, 64)',
    "a variable called torch": '(self, torch: Tensor) -> Tensor:\n    return torch.save("MARK")',
    "a type that is called": f"(self, y: List[{_FILE}]) -> int:\n    return 1",
    "a manager that is called": f"(self) -> int:\n    with {_FILE}:\n      pass\n    return 1",
    "900 digits": f"(self) -> int:\n    return {'9' * 900}",
    "a path of 100,000 names": "(self) -> int:\n    return self" + ".a" * 100_000,
    "5,000 indices": "(self, x: Tensor) -> Tensor:\n    return x" + "[0]" * 5000,
}
_DEFINED = {
    "a field of a tuple": f"class T(NamedTuple):\n  a : Tensor = {_FILE}",
    "a value of an enumeration": f"class E(Enum):\n  A = {_FILE}",
    "an interface's body": f"class I(Interface):\n  def f(self) -> Tensor:\n    return {_FILE}",
    "a constant of a class": f"class C(Module):\n  a : Final[Tensor] = {_FILE}",
    "a decorator": f"@{_FILE}\ndef f() -> int:\n  return 1",
    "outside of all": _FILE,
    "15 MiB of code": "def f(x: Tensor) -> Tensor:\n" + "  y = x\n" * 1_900_000 + "  return x",
}
_EVAL = b"\x80\x02c__torch__.__builtins__\neval\nX\1\0\0\x001\x85R."
_PT = {
    **{n: {"*.py": hostile._method(f"  def f{t}\n")} for n, t in _METHODS.items()},
    **{
        n: {"*.py": lambda c, t=t: f"{t}\n".encode() + c if b"class Small" in c else c}
        for n, t in _DEFINED.items()
    },
    "members above": {"../../mark": b"x", "extra/../../mark": b"x"},
    "a builtin for a class": {"data.pkl": _EVAL},
    "2,000,000 numbers": {"constants.pkl": b"\x80\x02(" + b"K\1" * 1_900_000 + b"t."},
    "a storage elsewhere": {
        "data.pkl": lambda d: d.replace(b"X\1\0\0\x000", b"X\x0c\0\0\0../../canary", 1)
    },
}

# Programs of torch.export ---------------------------------------------------------------------

_SIZES = (
    *("Integer(1)/0", "Rational(1, 0)", "FloorDiv(s0, 0)", "Mod(5, 0)", "oo - oo", "Max()"),
    *("Integer()", "Piecewise()", "s0 & 3", "ModularIndexing(s0, 0, 0)", "Not(s0)", "ToFloat(oo)"),
    *("FloatPow(9.5, 9) ** 9 ** 9", "*".join(f"(s{i} + s{i + 1})**9" for i in range(3))),
    *(f"Max({', '.join(f's{i}' for i in range(300))})", "Max(" * 80 + "s0" + ", s1)" * 80),
)


def _node(**more):
    text = json.dumps({"target": "torch.ops.aten.relu.default", "inputs": [], "name": "z", **more})
    return {"models/model.json": hostile._edit('"nodes": [', f'"nodes": [{text}, ')}


def _graphs(depth):
    head = '{"name": "g", "arg": {"as_graph": {"name": "g", "graph": {"nodes": [{"inputs": ['
    return json.loads(head * depth + "]}]}}}}" * depth)


_OBJECT = {"name": "o", "class_fqn": "__torch__.torch.classes.a.B"}
_PT2 = {
    **{f"the size {t[:30]}": hostile._expression(t) for t in _SIZES},
    "a size of 2^62": hostile._size('{"as_int": 4611686018427387904}'),
    "90 graphs in one another": _node(inputs=[_graphs(90)]),
    "an object": _node(inputs=[{"name": "o", "arg": {"as_custom_obj": _OBJECT}}]),
    "guards that are code": _node(guards_code=["1"], _guards_code=["open('MARK', 'w')"]),
    "a script for a module": _node(outputs=[], metadata={"nn_module_stack": f"a,{SCRIPT},a"}),
    "parts of AOTInductor": {"data/aotinductor/model/a.wrapper.cpp": b"int main() {}"},
    "a member above": {"extra/../../../mark": b"x", "data/weights/../../mark": b"x"},
}

# ONNX -----------------------------------------------------------------------------------------


def _computed(op, *inputs):
    tensors = [onnx.numpy_helper.from_array(np.array(v), f"c{i}") for i, v in enumerate(inputs)]
    names = " ".join(t.name for t in tensors)
    nodes = [onnx._node(op, names, "k"), onnx._node("Cast", "k", "f", to=1)]
    nodes += [onnx._node("ReduceMax", "f", "r", keepdims=0), onnx._node("Add", "x r", "y")]
    return onnx._model(nodes, tensors)


def _doubled(times):
    names = ["x", *(f"k{i}" for i in range(times)), "y"]
    pairs = pairwise(names)
    return onnx._model([onnx._node("Concat", f"{a} {a}", b, axis=0) for a, b in pairs])


ONNX = {
    "2^66 elements": lambda: _computed("ConstantOfShape", [1 << 33, 1 << 33]),
    "2^30 elements": lambda: _computed("ConstantOfShape", [1 << 15, 1 << 15]),
    "a size below 0": lambda: _computed("ConstantOfShape", [-5]),
    "a range to NaN": lambda: _computed("Range", *np.float32([0, np.nan, 1])),
    "a range by no step": lambda: _computed("Range", 0, 9, 0),
    "a range of 2^63": lambda: _computed("Range", -(1 << 62), 1 << 62, 1),
    "a range between none": lambda: _computed("Range", np.zeros(0, int), [9], [1]),
    "one expanded to 2^30": lambda: _computed("Expand", [1], [1 << 15, 1 << 15]),
    "two laid 2^29 times": lambda: _computed("Tile", [1, 2], [1 << 29]),
    "doubled 40 times": lambda: _doubled(40),
    "padded by 2^40": lambda: onnx._model(
        [onnx._node("Pad", "x p", "y")], [onnx._ints("p", 0, 0, 1 << 40, 0)]
    ),
}  # fmt: skip

LONG = ("15 MiB of code", "a path of 100,000 names", f"the size {_SIZES[-2][:30]}")
"""Those that take the time that whoever watches an engine gives them."""


def crafted():
    """Each file: (name, suffix, a function from its folder to its bytes)."""
    return [
        (name, kind, partial(_changed, kind, parts))
        for kind, table in ((".pt", _PT), (".pt2", _PT2))
        for name, parts in table.items()
    ]


def _changed(kind, parts, folder):
    return hostile.changed(kind, str(folder / "mark"), parts=parts, folder="archive")
