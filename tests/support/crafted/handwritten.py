"""Files by somebody who has read what checks them: each tries to run code, to make a file, to read
another, or to take all time or memory, by a way that the grammars might have forgotten.

`MARK`, in a text, stands for a file beside it that nothing may make, and `CANARY` for one above,
which nothing may read. Each is opened by a command of its own: `FILE` and `OUT` stand for the
file's path and for that of what is exported."""

import json
from functools import partial, reduce
from itertools import pairwise

import numpy as np
import torch

import hostile
import hostile_onnx as onnx
import hostile_programs
from relascope.recorder.writing import Writer, hashed

SCRIPT = "<script>alert(1)</script>"
GRAPH = ("graph", "FILE", "-o", "OUT.html", "--engine", "relax")
RELAY = (*GRAPH[:-1], "relay")
TABLE = ("graph", "FILE", "-o", "OUT.csv", "--engine", "relax")
OPEN = ("open", "FILE", "-o", "OUT.html")
REPLAY = ("replay", "FILE", "-o", "OUT.html")
PASSES = ("passes", "--pass-file", "FILE")
SAVED = ("graph", "MODEL", "--tensors", "FILE", "--engine", "relax")


def _filled(text, folder):
    text = text.replace("MARK", str(folder / "mark"))
    return text.replace("CANARY", str(folder.parent / "canary")).encode()


# Traces ---------------------------------------------------------------------------------------

_FILE = 'torch.from_file("MARK", True, 64, dtype=0)'
_METHODS = {
    "triple quotes": f'(self) -> int:\n    """ " """\n    {_FILE}\n    return 1',
    "a comment": f"(self) -> int:\n    # \\\n    {_FILE}\n    return 1",
    "a lambda": f"(self) -> int:\n    g = lambda: {_FILE}\n    return 1",
    "a manager that is called": f"(self) -> int:\n    with {_FILE}:\n      pass\n    return 1",
    "900 digits": f"(self) -> int:\n    return {'9' * 900}",
    "a path of 100,000 names": "(self) -> int:\n    return self" + ".a" * 100_000,
    "5,000 indices": "(self, x: Tensor) -> Tensor:\n    return x" + "[0]" * 5000,
}
_LONG_CODE = b"def f(x: Tensor) -> Tensor:\n" + b"  y = x\n" * 1_900_000 + b"  return x\n"
_EVAL = b"\x80\x02c__torch__.__builtins__\neval\nX\1\0\0\x001\x85R."
_PT = {
    **{n: {"*.py": hostile._method(f"  def f{t}\n")} for n, t in _METHODS.items()},
    "15 MiB of code": {"*.py": lambda c: _LONG_CODE + c if b"class Small" in c else c},
    **{n: {"*.py": change} for n, change in hostile.TAKING.items()},
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
    relu = {"target": "torch.ops.aten.relu.default", "inputs": [], "name": "z"}
    return hostile._first({**relu, **more})


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


def _linked(folder):
    """Weights in a link beside the model, to the canary."""
    (folder / "weights.bin").symlink_to(folder.parent / "canary")
    return onnx.external("weights.bin", length=64)


def _computed(op, *inputs):
    tensors = [onnx.numpy_helper.from_array(np.array(v), f"c{i}") for i, v in enumerate(inputs)]
    names = " ".join(t.name for t in tensors)
    nodes = [onnx._node(op, names, "k"), onnx._node("Cast", "k", "f", to=1)]
    nodes += [onnx._node("ReduceMax", "f", "r", keepdims=0), onnx._node("Add", "x r", "y")]
    return onnx._model(nodes, tensors)


def _loop(turns):
    head = "b (int64 i, bool c, float[2, 4] v) => (bool d, float[2, 4] w)"
    body = f"{head} {{ d = Identity(c) w = Add(v, v) }}"
    given = f"int64 n = {{{turns}}}, bool t = {{1}}"
    return onnx._written(f"y = Loop(n, t, x)<body = {body}>", given=given)


def _doubled(times):
    names = ["x", *(f"k{i}" for i in range(times)), "y"]
    pairs = pairwise(names)
    return onnx._model([onnx._node("Concat", f"{a} {a}", b, axis=0) for a, b in pairs])


def _named(*names):
    model = onnx.honest()
    for node, name in zip(model.graph.node, names, strict=False):
        node.name = name
    return model


_FORMULAS = ("=cmd|' /C calc'!A0", "@SUM(1)", "\t+1", "-1+cmd", f"/{SCRIPT}/relu")
ONNX = {
    "a link to the canary": _linked,
    "a path in dots": lambda folder: onnx.external("a/../../canary", length=64),
    "2^66 elements": lambda folder: _computed("ConstantOfShape", [1 << 33, 1 << 33]),
    "2^30 elements": lambda folder: _computed("ConstantOfShape", [1 << 15, 1 << 15]),
    "a size below 0": lambda folder: _computed("ConstantOfShape", [-5]),
    "a range to NaN": lambda folder: _computed("Range", *np.float32([0, np.nan, 1])),
    "a range by no step": lambda folder: _computed("Range", 0, 9, 0),
    "a range of 2^63": lambda folder: _computed("Range", -(1 << 62), 1 << 62, 1),
    "a range between none": lambda folder: _computed("Range", np.zeros(0, int), [9], [1]),
    "one expanded to 2^30": lambda folder: _computed("Expand", [1], [1 << 15, 1 << 15]),
    "two laid 2^29 times": lambda folder: _computed("Tile", [1, 2], [1 << 29]),
    "a loop of 2^62": lambda folder: _loop(1 << 62),
    "doubled 40 times": lambda folder: _doubled(40),
    "padded by 2^40": lambda folder: onnx._model(
        [onnx._node("Pad", "x p", "y")], [onnx._ints("p", 0, 0, 1 << 40, 0)]
    ),
}  # fmt: skip

# Modules of TVM's -----------------------------------------------------------------------------

_MAIN = "@R.function\ndef main(x: R.Tensor((2,), {})):\n    return x\n"
_SCRIPTS = {
    "a default that is called": "@R.function\ndef main(x=open('MARK', 'w')):\n    return x\n",
    "a decorator that is called": _MAIN.replace("n\n", "n(private=open('MARK', 'w'))\n", 1),
    "a type that is called": _MAIN.format("open('MARK', 'w')"),
    "a dimension in a text": _MAIN.replace("(2,)", "(\"open('MARK', 'w')\",)").format("'int8'"),
    "an f-string": _MAIN.format("f\"{open('MARK', 'w')}\""),
    "an argument of a block": _MAIN.format("'int8'").replace(
        "    return x", "    with R.dataflow(open('MARK', 'w')):\n        y = x\n    return y"
    ),
    "a base class": "@I.ir_module\nclass M(open('MARK', 'w')):\n    pass\n",
    "an import": "import mark\nfrom mark import *\n" + _MAIN.format("'float32'"),
    "5,000 lines": _MAIN.format("'int8'").replace("    return", "    x = R.add(x, x)\n" * 5000
                                                  + "    return"),
}  # fmt: skip
_HEAD = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) { '
_LETS = "".join(f"let %t{i + 1} = abs(%t{i}); " for i in range(10_000))
_RELAYS = {
    "an import": 'import "CANARY"\n' + _HEAD + "%x }",
    "10,000 lets": _HEAD + f"let %t0 = %x; {_LETS} %t10000 }}",
    "a text without end": _HEAD + 'multiply(%x, "',
    "a variable of nobody's": _HEAD + "add(%x, %y) }",
    "5,000 digits": _HEAD.replace("(2)", f"({'9' * 5000})") + "%x }",
    "2,000 levels": _HEAD + "(" * 2000 + "%x" + ",)" * 2000 + " }",
}


def _tuples(relay, count):
    """TVM's JSON of a tuple of two tuples, which are one: of 2^count values."""
    nodes = [{"type_key": ""}, {"type_key": "Array"}] if relay else [{"type": "None"}]
    for _ in range(count):
        one, two = [len(nodes) - 1] * 2, len(nodes)
        if relay:
            about = {"fields": str(two), "span": "0", "virtual_device_": "0"}
            nodes += [{"type_key": "Array", "data": one}]
            nodes += [{"type_key": "relay.Tuple", "attrs": {**about, "_checked_type_": "0"}}]
        else:
            nodes += [{"type": "ffi.Array", "data": one}]
            nodes += [{"type": "relax.expr.Tuple", "data": {"fields": two, "span": 0, "ty": 0}}]
    if relay:
        nodes[3]["attrs"]["fields"] = "1"
        found = {"root": len(nodes) - 1, "nodes": nodes, "attrs": {"tvm_version": "0.17"}}
    else:
        nodes[1]["data"] = []
        found = {"root_index": len(nodes) - 1, "nodes": nodes, "metadata": {"tvm_version": "0.27"}}
    return json.dumps(found).encode()


_COUNTS = {"60 tuples in one another": 60, "249,000 tuples in one another": 249_000}

# Recordings -----------------------------------------------------------------------------------


def _recording(folder, *lines, count=1, seconds=1.0, text="x"):
    """A recording of passes that all leave one function, and of lines as they are given."""
    path = folder / "own"
    writer = Writer(path, {"tvm": "0", "level": "text"})
    writer.content("text", name := hashed(text), lambda: {"zlib": text})
    about = {"depth": 0, "name": SCRIPT, "opt_level": 0}
    for number in range(count):
        writer.line({"begin": number, **about, "module": 0 if number else [None, {"f": name}, []]})
        writer.line({"end": number, "seconds": seconds, "module": 0})
    for line in lines:
        writer.line(line)
    writer.close()
    data = path.read_bytes()
    path.unlink()
    return data


_CODE = {"end": 0, "seconds": 1.0, "code": [["c", "CANARY"]]}
_FUNCTIONS = {f"f{n}": hashed("x") for n in range(2000)}
_BEGUN = {"depth": 0, "name": "a", "opt_level": 0, "module": [0, _FUNCTIONS, []]}
_RECORDINGS = {
    "60 MiB in a line": partial(_recording, text="a" * (60 << 20)),
    "15,000,000 lines": partial(_recording, text="a b\n" * (15 << 20)),
    "300,000 passes": partial(_recording, count=300_000),
    "100,000 passes": partial(_recording, count=100_000),
    "1e308 s, twice": lambda folder: _recording(folder, count=2, seconds=1e308),
    "NaN s": lambda folder: _recording(folder, seconds=float("nan")),
    "a file for code": lambda folder: _recording(folder, _CODE),
    "600,000 functions": lambda folder: _recording(
        folder, *({"begin": i, **_BEGUN} for i in range(1, 300))
    ),
}

# Sessions, saved inputs, passes ---------------------------------------------------------------


_ROWS = [{"name": SCRIPT, "max_abs": 1e308, "max_rel": "nan", "dtype": SCRIPT}] * 19_000


def _session(**fields):
    """A session that has found nothing yet, and what is to be changed of it: "a__b" is b of a."""

    def change(data):
        found = {**json.loads(data), "results": {}}
        for path, value in fields.items():
            *around, last = path.split("__")
            reduce(dict.__getitem__, around, found)[last] = value
        return json.dumps(found).encode()

    return {"session.json": change}


def _steps(count):
    """A pipeline whose steps are all asked for."""
    graphs = {str(i): {} for i in range(-1, count)}
    return _session(pipeline="|".join(["cse"] * count), results={"steps": [], "graphs": graphs})


_SESSIONS = {
    "200 steps": _steps(200),
    "4,000 steps": _steps(4000),
    "a script for a name": _session(model__name=f"{SCRIPT}.pt"),
    "19,000 rows": _session(results={"steps": [], "errors": {"comparisons": _ROWS}}),
    "the canary for saved inputs": _session(model__tensors=["../../canary"]),
    "a command for a target": _session(build__target="llvm -mcpu=$(touch MARK)"),
    "9,000 modules": _session(model__module="a." * 9000),
}
_ARRAY = partial(hostile._array, b"<f4", b"2, 4", then=lambda mark: bytes(32))
_HEADER = b'{"x":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}'
_INPUTS = {
    ("pickled objects", ".npz"): partial(hostile._array, b"|O", b"1,", ".npz"),
    ("a path for a name", ".npz"): lambda mark: hostile.packed({"../../mark.npy": b""}, 8, ""),
    ("a script for a name", ".npz"): lambda mark: hostile.packed(
        {f"{SCRIPT}.npy": _ARRAY(".npy", mark)}, 8, ""
    ),
    ("a size that is called", ".npy"): lambda mark: _ARRAY(".npy", mark).replace(
        b"(2, 4)", b"open('mark', 'w')"
    ),
    ("a pickle", ".pt"): hostile._makes,
    ("no JSON that is read", ".json"): lambda mark: b'{"x": ' + b"[" * 100_000,
    ("fewer bytes than it says", ".safetensors"): lambda mark: (
        len(_HEADER).to_bytes(8, "little") + _HEADER
    ),
}
_PASSES = {
    "code at the top": "open('MARK', 'w')\ndef f(program):\n    return program\n",
    "code in a default": "def f(program, a=open('MARK', 'w')):\n    return program\n",
    "5,000 brackets": "x = " + "(" * 5000 + ")" * 5000,
    "2,000,000 signs": "x = " + "-" * 2_000_000 + "1",
}


LONG = (
    *("15 MiB of code", "a path of 100,000 names", f"the size {_SIZES[-2][:30]}"),
    *hostile.TAKING,
)
"""Those that take the time that whoever watches an engine gives them."""


def crafted():
    """Each file: (name, suffix, a function from its folder to its bytes, how it is opened)."""
    found = []

    def add(suffix, command, table, make):
        found.extend((name, suffix, partial(make, what), command) for name, what in table.items())

    def parts_of(kind, what, folder):
        plain = "" if kind == ".zip" else "archive"
        return hostile.changed(kind, str(folder / "mark"), parts=what, folder=plain)

    def text_of(what, folder):
        return _filled(what, folder)

    add(".pt", GRAPH, _PT, partial(parts_of, ".pt"))
    add(".pt2", GRAPH, _PT2, partial(parts_of, ".pt2"))
    for command in (GRAPH, RELAY):
        add(".onnx", command, ONNX, lambda make, folder: make(folder).SerializeToString())
        add(".relay", command, _RELAYS, text_of)
        add(".relay.json", command, _COUNTS, lambda n, folder: _tuples(True, n))
    add(".onnx", TABLE, {"formulas": _FORMULAS}, lambda n, f: _named(*n).SerializeToString())
    add(".relax.json", GRAPH, _COUNTS, lambda n, folder: _tuples(False, n))
    add(".py", GRAPH, _SCRIPTS, text_of)
    add(".rsc", OPEN, _RECORDINGS, lambda make, folder: make(folder))
    add(".zip", REPLAY, _SESSIONS, partial(parts_of, ".zip"))
    add(".py", PASSES, _PASSES, text_of)
    for (name, suffix), make in _INPUTS.items():
        made = lambda folder, m=make: m(str(folder / "mark"))  # noqa: E731
        found.append((name, suffix, made, SAVED))
    return found


def honest(suffix, command):
    """An honest file that is opened in the same way, as `crafted` has those."""
    if command == PASSES:
        return lambda folder: b"def f(program):\n    return program\n"
    if command == SAVED:
        kind = suffix if suffix in hostile.TENSORS else ".npz"
        return lambda folder: hostile.saved(kind, {"x": torch.arange(8.0).reshape(2, 4)})
    if suffix == ".rsc":
        return _recording
    if suffix == ".zip":
        change = _session()
        return lambda folder: hostile.changed(".zip", "", parts=change, folder="")
    kind = hostile if suffix in (".pt", ".pt2", ".onnx") else hostile_programs
    return lambda folder: kind.honest(suffix)
