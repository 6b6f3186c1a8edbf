"""Honest and hostile files with programs of TVM's. Needs no TVM: honest ones were written by it."""

import io
import tarfile
from functools import cache
from pathlib import Path

import numpy as np

_SAVED = Path(__file__).resolve().parent
_NAMES = {".relay": "mod.relay", ".relay.json": "mod.relay.json", ".py": "mod.script"}
_NAMES |= {".relax.json": "mod.relax.json"}
_HEAD = """from tvm.script import ir as I
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        y = {}
        return y
"""
_SCRIPTS = {
    "a call of os": "R.add(x, __import__('os').system('touch {mark}'))",
    "globals": "R.add.__globals__['__builtins__']['open']('{mark}', 'w')",
    "a shape as text": "R.zeros(R.shape(['open(1)']), 'float32')",
    "a lambda": "(lambda: x)()",
    "a power": "R.reshape(x, R.shape([9 ** 9 ** 9 ** 9]))",
    "a packed function": "R.call_packed('runtime.ModuleLoadFromFile', x)",
    "depth": "(" * 500 + "x" + ")" * 500,
    "many minus": "-" * 5000 + "x",
    "a large tensor": "R.zeros(R.shape([1000000, 1000000, 1000000]), 'float32')",
    "a wrong type": "R.nn.conv2d(x, x)",
}
_RELAYS = {
    "a packed function": "def @main(%x: Tensor[(2), float32]) {{ vm.shape_of(%x) }}",
    "depth": "def @main(%x: Tensor[(2), float32]) {{ "
    + "abs(" * 20000
    + "%x"
    + ")" * 20000
    + " }}",
    "a bomb of tuples": "def @main(%x: Tensor[(2), float32]) {{ "
    + "".join(
        f"let %t{i + 1} = (%{f't{i}' if i else 'x'}, %{f't{i}' if i else 'x'}); " for i in range(40)
    )
    + "%t40 }}",
    "a large tensor": 'def @main() {{ zeros(shape=[100000000, 100000000], dtype="float32") }}',
    "itself": "def @main(%x: Tensor[(2), float32]) {{ @main(%x) }}",
    "a foreign compiler": "def @main(%x: Tensor[(2), float32]) {{ let %f = fn (%y: Tensor[(2), "
    'float32], Compiler="ccompiler", global_symbol="{mark}", Primitive=1) {{ abs(%y) }}; %f(%x) }}',
    "no metadata": "def @main(%x: Tensor[(2), float32]) {{ add(%x, meta[relay.Constant][0]) }}",
    "metadata that is none": "def @main() {{ meta[relay.Constant][0] }}\n#[metadata]\n"
    '{{"root": 0, "nodes": [{{"type_key": "runtime.Module", "repr_b64": "AA=="}}], "attrs": '
    '{{"tvm_version": "0.17"}}}}',
}
_JSON = {
    "no nodes": "{}",
    "depth": '{"nodes": ' + "[" * 100_000,
    "a module of code": '{"root": 0, "nodes": [{"type_key": "runtime.Module", "repr_b64": "A"}]}',
    "a circle": '{"root": 0, "nodes": [{"type_key": "Array", "data": [0]}], "attrs": '
    '{"tvm_version": "0.17"}}',
    "an op that is a number": '{"root": 2, "nodes": [{"type_key": ""}, {"type_key": "IntImm", '
    '"attrs": {"dtype": "int32", "value": "1"}}, {"type_key": "relay.Call", "attrs": {"op": "1"}}],'
    '"attrs": {"tvm_version": "0.17"}}',
    "a function of C": '{"root_index": 0, "nodes": [{"type": "relax.expr.ExternFunc", "data": '
    '{"global_symbol": 0}}], "metadata": {"tvm_version": "0.27"}}',
    "a node that stands behind": '{"root_index": 0, "nodes": [{"type": "ffi.Array", "data": [1]}, '
    '{"type": "int", "data": 1}], "metadata": {"tvm_version": "0.27"}}',
    "itself": '{"root_index": 0, "nodes": [{"type": "ir.Tuple", "data": {"span": 0, "ty": 0, '
    '"fields": 0}}], "metadata": {"tvm_version": "0.27"}}',
}


@cache
def honest(kind):
    """The bytes of an honest file of a kind; ".relay.tar" and ".relax.tar" have parameters, too."""
    if not kind.endswith(".tar"):
        return (_SAVED / _NAMES[kind]).read_bytes()
    json = kind.replace(".tar", ".json")
    params = "relax.params" if "relax" in kind else "mod.params"
    return packed({f"mod{json}": honest(json), "mod.params": (_SAVED / params).read_bytes()})


def packed(parts):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


def crafted():
    """Each hostile file: (name, suffix, a function from the mark's path to its bytes)."""
    found = []
    for name, text in _SCRIPTS.items():
        made = lambda mark, t=text: _HEAD.format(t.replace("{mark}", mark)).encode()  # noqa: E731
        found.append((name, ".py", made))
    for name, text in _RELAYS.items():
        made = lambda mark, t=text: f'#[version = "0.0.5"]\n{t.format(mark=mark)}'.encode()  # noqa: E731
        found.append((name, ".relay", made))
    for name, text in _JSON.items():
        for kind in (".relay.json", ".relax.json"):
            found.append((name, kind, lambda mark, t=text: t.encode()))
    large = np.array([0xF7E58D4F05049CB7, 0, 1 << 60], dtype="<u8").tobytes()
    for kind in (".relay", ".relax"):
        json = honest(f"{kind}.json")
        archives = {
            "parameters of no size": packed({"mod.json": json, "a.params": large}),
            "two programs": packed({"a.json": json, "b.json": json}),
            "no program": packed({"a.params": large}),
            "a library": packed({"lib.so": b"\x7fELF" + bytes(100)}),
            "paths": packed({"../../mod.json": json}),
        }
        for name, data in archives.items():
            found.append((name, f"{kind}.tar", lambda mark, d=data: d))
    return found
