"""Files of models that try to run code, touch files, or take all memory and time.

Each is made from an honest file of a small module. `MARK`, in a text or a pickle, stands for the
path of a file beside the model's, which nothing may make."""

import io
import json
import pickle
import re
import struct
import tempfile
import zipfile
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

import hostile_onnx
from relascope.engine.protocol.source import file_digest
from relascope.viz.sessions import replay
from relascope.viz.sessions.state import ModelChoice, Session

MARK = "MARK"
BOMB = 400 << 20


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        return torch.relu(self.fc(x)) * self.scale


_COMPARED = {"name": "output 0", "max_abs": 1e-7, "max_rel": "nan", "dtype": "float32"}
_RESULTS = {
    "steps": [{"pass_name": "FoldConstant", "enabled": True, "nodes": 3, "added": 1}],
    "graphs": {"-1": {"nodes": 3, "edges": 2, "hash": "0" * 32}, "0": {"error": {"message": "no"}}},
    "cut": {"captures": ["a", "b"], "bytes": 64, "measured": [[["a"], 0.5]]},
    "errors": {"target": "llvm", "comparisons": [_COMPARED]},
    "accuracy": {"target": "llvm", "inputs": ["usual"], "rows": [{"stage": "cut", "max_abs": 0.5}]},
    "bisection": {"asked": "", "kind": "wrong", "suspects": ["fold"], "rows": [{"worst": "x"}]},
    "profile": {"captures": [], "rows": [{"kernel": "k", "median_ms": 0.5, "nodes": ["a"]}]},
}


TENSORS = {
    ".npy": lambda file, tensors: np.save(file, tensors["x"].numpy()),
    ".npz": lambda file, tensors: np.savez(file, **{n: t.numpy() for n, t in tensors.items()}),
    ".safetensors": lambda file, tensors: file.write(save(tensors)),
    ".tensors": lambda file, tensors: torch.save(tensors, file),
}
"""How saved tensors are written, by the end of the file's name; the last as torch does."""


@cache
def honest(kind):
    """The bytes of an honest file: ".pt", ".pt2", ".onnx", ".zip", which is a session with the
    first, or of saved tensors, in `TENSORS`."""
    data, module, x = io.BytesIO(), Small().eval(), torch.ones(2, 4)
    if kind == ".onnx":
        return bytes(hostile_onnx.honest().SerializeToString())
    if kind == ".zip":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.pt")
            path.write_bytes(honest(".pt"))
            model = ModelChoice(path.name, file_digest(path))
            replay.write(data, replace(Session(), model=model, results=_RESULTS), path)
    elif kind in TENSORS:
        return saved(kind, {"x": torch.arange(8.0).reshape(2, 4), "ids": torch.arange(6)})
    elif kind == ".pt":
        torch.jit.save(torch.jit.trace(module, x), data)
    else:
        torch.export.save(torch.export.export(module, (x,)), data)
    return data.getvalue()


def saved(kind, tensors):
    """The bytes of a file of saved tensors."""
    data = io.BytesIO()
    TENSORS[kind](data, tensors)
    return data.getvalue()


def members(data):
    """The members of an archive by their names, without the folder that all stand in."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {n.partition("/")[2] or n: archive.read(n) for n in archive.namelist()}


def packed(parts, method=zipfile.ZIP_STORED, folder="archive"):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(f"{folder}/{name}".lstrip("/"), content)
    return data.getvalue()


def changed(kind, mark, parts, folder="archive"):
    """An honest file with members replaced, or taken out with None; "*.x" is each that ends so."""
    made = members(honest(kind))
    for name, content in parts.items():
        for one in [n for n in made if n.endswith(name[1:])] if name[0] == "*" else [name]:
            new = content(made.get(one, b"")) if callable(content) else content
            if new is None:
                made.pop(one, None)
            else:
                made[one] = new.replace(MARK.encode(), mark.encode())
    return packed(made, folder=folder)


class _At:
    def __init__(self, text):
        self.text = text

    def __reduce__(self):
        return exec, (self.text,)


def _makes(mark):
    """A pickle that runs code, whose text has the mark's real length."""
    return pickle.dumps(_At(f"open({mark!r}, 'w').close()"), protocol=2)


def _line(text):
    """Code with a line of its own in the outermost forward()."""

    def change(code):
        lines = code.decode().splitlines()
        if "class Small" not in code.decode():
            return code
        at = next(i for i, s in enumerate(lines) if s.startswith("    return"))
        lines[at:at] = [f"    {s}" for s in text.split("\n")]
        return "\n".join([*lines, ""]).encode()

    return change


def _method(text):
    """Code with another method in each class."""
    return lambda code: code.rstrip() + b"\n" + text.encode() + b"\n"


_LINES = {
    "rpc by name": '_9 = rpc_sync("a", "b")',
    "distributed": '_9 = ops.c10d.allreduce_([x], "a", "b", None, True, -1)',
    "print without end": 'while True:\n  print("a")',
    "memory": "_0 = torch.add(_0, torch.sum(torch.ones([100000, 100000])))",
    "memory beyond all": "_0 = torch.add(_0, torch.sum(torch.ones([1099511627776, 1024])))",
    "long list": "_0 = torch.add(_0, torch.len(torch.mul([0], 10000000000)))",
    "brackets": f"_9 = {'(' * 100000}x{')' * 100000}",
    "signs": f"_9 = {'- ' * 200000}3",
    "sum": f"_9 = {'+ '.join(['1'] * 200000)}",
    "blocks": "\n".join("  " * i + "if True:" for i in range(3000)),
    "raise": 'ops.prim.RaiseException("bad")',
    "index": "_0 = torch.select(x, 0, 99999)",
    "index far": "_0 = torch.as_strided(x, [9], [1], 1152921504606846976)",
    "stride": "_0 = torch.as_strided(x, [1000000], [1000000], 0)",
    "views": "_0 = torch.view(x, [-7, 99])",
    "size of NaN": "_0 = torch.ones([int(nan)])",
    "a text": '_0 = "text"',
    "nothing left": "_0 = torch.slice(x, 0, 5, 5)",
    "no such device": '_0 = torch.to(x, torch.device("cuda:7"))',
    "attributes": "_9 = self.nothing",
    "recursion": "_9 = (self).forward(x, )",
    "NUL": '_9 = "\0"',
}


_METHODS = _method(
    "".join(
        f"  def f{i}(self, x: Tensor) -> Tensor:\n    return torch.add("
        + (f"(self).f{i + 1}(x, ), (self).f{i + 1}(x, ))\n" if i < 39 else "x, x)\n")
        for i in range(40)
    )
)
_PRODUCTS = "_9 = torch.matmul(_9, _9)\n" * 30
TAKING = {
    "endless": _line("while True:\n  _0 = torch.add(_0, x)"),
    "endless range": _line("for _7 in range(9999999999):\n  _0 = torch.add(_0, x)"),
    "small parts": _line("_8 = [x]\nwhile True:\n  _8 = torch.append(_8, torch.ones([999, 999]))"),
    "a long text": _line('_0 = torch.add(_0, torch.len(torch.ljust("a", 10000000000)))'),
    "doubling": _line('_8 = "a"\nwhile True:\n  _8 = torch.add(_8, _8)'),
    "work": _line(f"_9 = torch.ones([9000, 9000])\n{_PRODUCTS}_0 = torch.add(_0, torch.sum(_9))"),
    "calls without end": lambda code: _METHODS(_line("_0 = (self).f0(x, )")(code)),
}
"""Changes of code that take all the time or memory that whoever watches an engine gives them."""


def _swapped(member, old, new):
    """A member with some bytes for others, wherever they stand."""
    return {member: lambda data: data.replace(old, new)}


_JSON, _INPUTS = "models/model.json", "traced_inputs.pkl"


def _tensors(change):
    """data.pkl with the numbers of elements of its tensors changed."""
    count = rb"(?s)(X\x03\x00\x00\x00cpu(?:q.)?)K[\x04\x10]"
    return lambda data: re.sub(count, rb"\1" + change, data)


_PT = {
    **{f"code: {what}": {"*.py": _line(text)} for what, text in _LINES.items()},
    "code in another code": {"*.py": "é".encode("latin-1")},
    "no code": {"*.py": b""},
    "places beyond the table": {
        "*.debug_pkl": lambda data: re.sub(rb"\(\]\((?=K.)K.", b"(](J\xff\xff\0\0", data),
        "*.py": lambda code: code.replace(b"]", b",, ]", 1),
    },
    "legacy": {"model.json": b"{}"},
    "nested tuples": {"data.pkl": b"\x80\x02N" + b"\x85" * 1_000_000 + b"."},
    "nested lists": {"constants.pkl": b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b"."},
    "far memo": {"data.pkl": b"\x80\x02Nr\xff\xff\xff\x7f."},
    "long number": {"data.pkl": b"\x80\x02\x8b\xff\xff\xff\x7f."},
    "long text in it": {"data.pkl": b"\x80\x02X\xff\xff\xff\xff."},
    "short storage": {"data.pkl": _tensors(b"J\x00\x00\x00\x10")},
    "negative storage": {"data.pkl": _tensors(b"J\xff\xff\xff\xff")},
    "no pickle": {"data.pkl": b"no"},
    "classes in it": {
        "data.pkl": b"\x80\x02c__torch__.torch.classes.quantized\nLinearPackedParamsBase\n)\x81}b."
    },
    "negative sizes": _swapped(_INPUTS, b"K\x02K\x04t", b"J\xff\xff\xff\xffK\x04t"),
    "NaN sizes": _swapped(_INPUTS, b"K\x02K\x04t", b"G\x7f\xf8" + bytes(6) + b"K\x04t"),
    "text sizes": _swapped(_INPUTS, b"K\x02K\x04t", b"X\x01\0\0\0aK\x04t"),
    "large sizes": _swapped(_INPUTS, b"K\x02K\x04t", b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7ft"),
    "inputs of nothing": {"traced_inputs.pkl": b"\x80\x02}X\x07\0\0\0forward]Nas."},
}


def _edited(find, put):
    """A text of model.json replaced, once."""

    def change(data):
        text = data.decode()
        assert find in text, find
        return text.replace(find, put, 1).encode()

    return {_JSON: change}


_SIZE = '"sizes": [{"as_int": 2}'


def _size(text):
    return _edited(_SIZE, f'"sizes": [{text}')


def _expression(text):
    return _size(json.dumps({"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}))


def _calling(target, *inputs):
    return {"target": target, "inputs": inputs, "outputs": [], "metadata": {}, "name": "z"}


def _first(node):
    return _edited('"nodes": [', f'"nodes": [{json.dumps(node)}, ')


def _call(target, text=MARK):
    return _first(_calling(target, {"name": "", "arg": {"as_string": text}, "kind": 1}))


def _spec(tree):
    return _spec_text(json.dumps([1, tree]))


def _spec_text(text):
    made = f'"in_spec": {json.dumps(text)}'.encode()
    return {_JSON: lambda d: re.sub(rb'"in_spec": "(\\.|[^"\\])*"', lambda _: made, d, count=1)}


def _leaf(kind, context, *children):
    return {"type": kind, "context": json.dumps(context), "children_spec": children}


_RUN = "__import__('os').system('touch MARK')"
_NONE = {"type": None, "context": None, "children_spec": []}
_GRAPH = {"name": "g", "graph": {"nodes": [_calling("torch.os.system")]}}
_HIDDEN = {"name": "self", "arg": {"as_graph": _GRAPH}}


def _number(text):
    return _calling("torch.ops.aten.add.Scalar", {"name": "b", "arg": {"as_float": text}})


_FACTORY = {"default_factory_module": "os", "default_factory_name": "abort", "dict_context": []}
_ENUM = {"__enum__": True, "fqn": "os:system", "name": "x"}
_META = '{"path_name": "%s", "is_param": false, "use_pickle": true, "tensor_meta": null}'
_CONFIG = '{"config": {"c": ' + _META + "}}"
_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"
_TARGETS = """
torch.os.system torch.load torch.hub.load torch.ops.aten.from_file.default
torch.ops.load_library torch.classes.load_library
torch.ops.inductor.accumulate_grad_.default _operator.attrgetter _operator.methodcaller
math.__loader__.load_module torch.serialization.pickle.loads torch.utils.cpp_extension.load
#sneaky:run torch.ops.higher_order.while_loop
torch.ops.aten._assert_scalar.default.__class__
"""
_PT2 = {
    **{
        f"target: {t}": _call(t)
        for t in (
            *_TARGETS.split(),
            *("torch.ops.aten._assert_async.msg\n", "torch..ops.aten.relu.default;" + _RUN),
        )
    },
    **{
        f"text for {t}": _call(f"torch.ops.aten.{t}.default", _RUN + "%99999999d")
        for t in ("gelu", "einsum", "_assert_tensor_metadata", "_print")
    },
    "text for an operator's sign": _call("_operator.mod", "%99999999999d"),
    "graph in an assertion": _first(_calling("torch.ops.aten._assert_scalar.default", _HIDDEN)),
    **{
        f"number: {t}": _first(_number(t))
        for t in ("inf", "1e999", "-NaN", "Infinity" * 9, _RUN, "0x10", "infinity")
    },
    **{
        f"size: {t[:24]}": _expression(t)
        for t in (
            *(_RUN, "9**9**9**9", "(9**9)**(9**9)", "s0.__class__.__base__.__subclasses__()"),
            *("lambda: 0", "[x for x in (1,)]", "Symbol('s0')", "factorial(99999999)"),
            *("(" * 4000 + "s0" + ")" * 4000, "s0\n+1;import os", "1e999999999"),
            "PowByNatural(9, 99999999999)",
            "PowByNatural(Integer(9), Symbol('s0', positive=True, integer=True))",
            *("FloatPow(9.0, FloatPow(9.0, FloatPow(9.0, 9.0)))", "Float('1.5', dps=4000000000)"),
            *("Float('1.5', precision=True)", "Float('1." + "5" * 1900 + "')"),
            "Symbol('s0', commutative='os')",
            "Piecewise(ExprCondPair(Integer(1), open('MARK', 'w')))",
            *("LShift(Integer(1), Integer(99999999999))", ""),
        )
    },
    "size: text": _size('{"as_int": "many"}'),
    "size: NaN": _size('{"as_int": NaN}'),
    "size: negative": _size('{"as_int": -5}'),
    "size: large": _size('{"as_int": 1152921504606846976}'),
    "size: nothing": _size("null"),
    "name of a node": _swapped(_JSON, b'"name": "x"', b"\"name\": \"x=open('MARK','w')\""),
    "name of an argument": _edited('"name": "input"', '"name": "a=exit(),b"'),
    "name of a parameter": _edited('"fc.weight"', '"fc.weight\\"), exit(), (\\""'),
    "name of a module": _swapped(_JSON, b",fc,", b',fc\\"+open(MARK)+\\",'),
    "spec: factory": _spec(_leaf("collections.defaultdict", _FACTORY)),
    "spec: enumeration": _spec(_leaf("builtins.dict", [_ENUM])),
    "spec: class": _spec(_leaf("os.system", None)),
    "spec: class with inputs": _spec(_leaf("os.system", "touch MARK", _NONE)),
    "spec: class of torch": _spec(_leaf("torch.storage.UntypedStorage", [1 << 40])),
    "spec: type": _spec(_leaf(["os", "system"], None)),
    "spec: keys": _spec(_leaf("builtins.dict", ["a", "b"])),
    "spec: version": _edited('"in_spec": "[1,', '"in_spec": "[2,'),
    "spec: 100,000 leaves": _spec(_leaf("os.system", None, *[_NONE] * 100_000)),
    "name of a node: no letter": _swapped(_JSON, b'"name": "x"', '"name": "x²"'.encode()),
    "name of a node: a word of Python": _swapped(_JSON, b'"name": "x"', b'"name": "lambda"'),
    "spec: deep": _spec_text("[" * 100_000),
    "device": _edited('"type": "cpu"', '"type": "sneaky"'),
    "no device": _edited('"type": "cpu"', '"type": "cuda"'),
    "custom object": _edited(
        '{"as_tensor": {"name": "x"}}',
        '{"as_custom_obj": {"name": "x", "class_fqn": "__torch__.A"}}',
    ),
    "no JSON": {_JSON: b"{"},
    "deep JSON": {_JSON: b"[" * 1_000_000},
    "no program": {_JSON: None},
    "another program": {"models/other.json": b"{}"},
    "library": {"data/aotinductor/model/a.so": b"\x7fELF"},
    "old format": {"serialized_exported_program.json": b"{}", "version": b"8.1"},
    "empty weight": {"data/weights/weight_0": b""},
    "empty weight of large size": {
        "data/weights/weight_0": b"",
        **_swapped(_WEIGHTS, b'{"as_int": 4}', b'{"as_int": 1048576}'),
    },
    "short weight": {"data/weights/weight_0": bytes(8)},
    "odd weight": {"data/weights/weight_0": bytes(7)},
    "stride of a weight": _swapped(
        _WEIGHTS, b'"strides": [{"as_int": 4}', b'"strides": [{"as_int": 99999999}'
    ),
    "weight elsewhere": _swapped(_WEIGHTS, b'"weight_0"', b'"../../../etc/passwd"'),
}
_OLD = ("data.pkl", "constants.pkl", "traced_inputs.pkl", "*.debug_pkl")
_PICKLED = {
    ".pt": {f"in {member}": (None, member) for member in _OLD},
    ".pt2": {
        "weight as a pickle": (_WEIGHTS, "data/weights/weight_0"),
        "constant as a pickle": (_CONSTANTS, "data/constants/tensor_0"),
        "opaque": (_CONSTANTS, "data/constants/opaque_obj_0"),
        "custom": (_CONSTANTS, "data/constants/custom_obj_0"),
        "sample inputs": (None, "data/sample_inputs/model.pt"),
        "weights of old": (None, "data/weights/model.pt"),
        "constants of old": (None, "data/constants/model.pt"),
    },
}
"""Members that are pickles, and the configuration, if any, that says so."""


def _pickled(kind, config, member, mark):
    says = {config: (_CONFIG % Path(member).name).encode()} if config else {}
    return changed(kind, mark, parts={**says, member: _makes(mark)})


def _bomb(kind, member, mark):
    parts = {**members(honest(kind)), member: bytes(BOMB)}
    return packed(parts, zipfile.ZIP_DEFLATED, "" if kind == ".zip" else "archive")


def _all(data, at, new):
    """Change a field of each entry of the directory, `at` bytes behind its signature."""
    made = bytearray(data)
    for match in re.finditer(rb"PK\x01\x02", data):
        place = match.start() + at
        made[place : place + len(new)] = new
    assert made != data
    return bytes(made)


def _overlapping(kind):
    """A directory that lists the same bytes under many names."""
    data = io.BytesIO(packed(members(honest(kind))))
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr("archive/extra/0", bytes(1 << 20))
        one = archive.filelist[-1]
        for index in range(1, 500):
            other = zipfile.ZipInfo(f"archive/extra/{index}")
            for field in ("header_offset", "file_size", "compress_size", "CRC"):
                setattr(other, field, getattr(one, field))
            archive.filelist.append(other)
    return data.getvalue()


_ARCHIVES = {
    "nothing": lambda kind: b"",
    "text": lambda kind: b"hello",
    "torn": lambda kind: honest(kind)[: len(honest(kind)) // 2],
    "with a head": lambda kind: b"#!/bin/sh\n" + honest(kind),
    "encrypted": lambda kind: _all(honest(kind), 8, b"\x01\x00"),
    "names in another code": lambda kind: honest(kind).replace(b"byteorder", b"byteord\xffr"),
    "sizes larger": lambda kind: _all(honest(kind), 24, struct.pack("<I", 0x7FFFFFFF)),
    "sizes beyond": lambda kind: _all(honest(kind), 20, b"\xff" * 8),
    "sizes smaller": lambda kind: _all(honest(kind), 24, struct.pack("<I", 1)),
    "packed in a way": lambda kind: _all(honest(kind), 10, b"\x0c\x00"),
    "elsewhere": lambda kind: _all(honest(kind), 42, struct.pack("<I", 0x7FFFFFF0)),
    "twice": lambda kind: packed(
        {**members(honest(kind)), "DATA.PKL": b"", "Models/model.json": b""}
    ),
    "a folder alone": lambda kind: packed({"": b""}),
    "many members": lambda kind: packed(
        dict.fromkeys(("version", *map(str, range(100_500))), b"3\n")
    ),
    "overlapping": _overlapping,
    "saved tensors": lambda kind: saved(".tensors", {"a": torch.ones(2)}),
    "tarred": lambda kind: b"PK\x03\x04" + bytes(1000),
}


def _array(descr, shape, kind, mark, then=_makes):
    head = b"\x93NUMPY\x01\0v\0{'descr': '%s', 'fortran_order': False, 'shape': (%s), }"
    data = (head % (descr, shape)).ljust(127) + b"\n" + then(mark)
    return data if kind == ".npy" else packed({"x.npy": data}, zipfile.ZIP_DEFLATED, "")


def crafted():
    """Each hostile file: (name, suffix, a function from the mark's path to its bytes)."""
    found = []
    for kind, table in ((".pt", _PT), (".pt2", _PT2)):
        found += [(n, kind, partial(changed, kind, parts=parts)) for n, parts in table.items()]
    for kind, table in _PICKLED.items():
        found += [(f"pickle: {n}", kind, partial(_pickled, kind, *a)) for n, a in table.items()]
    for kind in (".pt", ".pt2"):
        found += [(n, kind, lambda mark, b=b, k=kind: b(k)) for n, b in _ARCHIVES.items()]
    for member, kind in (("data.pkl", ".pt"), ("data/0", ".pt"), (_JSON, ".pt2")):
        found.append((f"bomb in {member}", kind, partial(_bomb, kind, member)))
    return found
