"""Files of TVM's programs without any TVM: archives, parameters, JSON, scripts."""

import ast
import json
import struct
import tarfile

import numpy as np
import pytest

from answers import refused
from relascope.core.graph import TensorType
from relascope.engine.files import program_file, tvm_json
from relascope.engine.files.program_file import check_params, not_read, taken_apart
from relascope.engine.files.script import check_script
from relascope.engine.files.tvm_arrays import read_array, read_params

RELAY = '#[version = "0.0.5"]\ndef @main(%x: int64) { %x }'
LIBRARY = b"\x7fELF\x02\x01\x01" + bytes(57)


@pytest.mark.parametrize("check", [tvm_json.check_relay_json, tvm_json.check_relax_json])
def test_json_has_only_so_many_nodes(check, monkeypatch):
    monkeypatch.setattr(tvm_json, "_NODES", 3)
    with refused("file", "more than 3 nodes"):
        check('{"nodes": [1, 2, 3, 4]}', "mod.json")


def relay(*nodes, root=0, version="0.17"):
    return {"root": root, "nodes": [*nodes], "attrs": {"tvm_version": version}}


def relax(*nodes, root=0):
    return {"root_index": root, "nodes": [*nodes], "metadata": {"tvm_version": "0.27"}}


CALL = {"type_key": "relay.Call", "attrs": {"op": "1"}}
NUMBER = {"type_key": "IntImm", "attrs": {"dtype": "int32", "value": "1"}}
FUNCTIONS = [{"type_key": "GlobalVar"}, {"type_key": "Map", "data": [0, 0]}]
JSON = [
    ({}, "it has no list of nodes"),
    ([], "it is not an object"),
    (relay({"type_key": "runtime.Module", "repr_b64": "A"}), "packed"),
    (relay({"type_key": "runtime.Module"}), "the type runtime.Module, which no such module"),
    (relay({"type_key": "Array", "data": [0]}), "refer to each other in a cycle"),
    (relay(CALL, NUMBER), r"has IntImm as its op"),
    (relay(*FUNCTIONS, {"type_key": "IRModule", "attrs": {"functions": "1"}}), "among its functio"),
    (relay({"type_key": "Array", "data": [7]}), "refers to a node '7', which does not exist"),
    (relay({"type_key": "Map", "data": [0]}), "a key without a value"),
    (relay({"type_key": "relay.Constant", "attrs": {"data": "0"}}), "constant 0 has no array"),
    (relay({"type_key": "Op", "repr_str": 3}), "node 0 has no text"),
    (relay(NUMBER, version="?"), "does not say which TVM wrote it"),
    (relay(NUMBER) | {"b64ndarrays": ["AA=="]}, "an array in it cannot be read: it ends too early"),
    (relay(NUMBER, root=4), "refers to a node '4', which does not exist"),
    (relax({"type": "relax.expr.ExternFunc", "data": {}}), "the type relax.expr.ExternFunc"),
    (relax({"type": "ffi.Array", "data": [1]}, {"type": "int"}), "does not come before it"),
    (relax({"type": "ffi.Tensor", "data": "AA=="}), "an array in it cannot be read"),
    (relax({"type": "int"}, root=1), "it has no root"),
    (relax({"type": "int", "more": 1}), "node 0 is not a node"),
]


@pytest.mark.parametrize(("found", "why"), JSON)
def test_json_that_tvm_is_not_given(found, why):
    check = tvm_json.check_relax_json if "root_index" in found else tvm_json.check_relay_json
    with refused("file", why, where="mod.json", says="Cannot read mod.json as TVM's JSON: "):
        check(json.dumps(found), "mod.json")


def archive(folder, **members):
    path = folder / "mod.tar"
    with tarfile.open(path, "w") as made:
        for name, data in members.items():
            (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
            made.add(folder / name, name.replace("_", "."))
    return path


def test_the_program_of_an_archive_is_found_and_a_library_has_none(tmp_path):
    found = taken_apart(archive(tmp_path, mod_relay=RELAY, note_txt="hello"))
    assert (found.format, found.text, dict(found.params)) == ("relay", RELAY, {})
    (tmp_path / "lib.so").write_bytes(LIBRARY)
    with refused("file", "is a compiled library"):
        taken_apart(tmp_path / "lib.so")


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"a_relay": RELAY, "b_relay": RELAY}, "holds 2 programs"),
        ({"note_txt": "hello"}, "holds no program in a known format"),
        ({"mod_relay": RELAY.encode() + b"\xff"}, "is not UTF-8"),
    ],
)
def test_an_archive_without_one_program_is_refused(tmp_path, members, why):
    with refused("file", why):
        taken_apart(archive(tmp_path, **members))


def test_archives_have_limits_and_damage_is_told(tmp_path, monkeypatch):
    path = archive(tmp_path, mod_relay=RELAY, note_txt="hello")
    for limit, most, why in (("_TEXT", 10, "text is 256"), ("_MEMBERS", 1, "than 1 members")):
        monkeypatch.setattr(program_file, limit, most)
        with refused("file", why):
            taken_apart(path)
    path = archive(tmp_path, mod_relay=RELAY * 400)
    path.write_bytes(path.read_bytes()[:2000])
    with refused("file", "cannot be read as an archive"):
        taken_apart(path)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"y": np.zeros(2, "float32")}, "has a parameter 'y', which is not an argument"),
        ({"x": np.zeros(3, "float32")}, "is float32[3]; the program takes float32[2]"),
    ],
)
def test_parameters_fit_their_program(params, why):
    with refused("file", says=why):
        check_params(params, {"x": TensorType((2,), "float32")}, "mod.tar")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["note: here", "TVMError: Check failed: (a) is false: no such axis"], "no such axis"),
        (["ValueError: expected a tensor."], "expected a tensor"),
        (["JSONReader: cannot find field span"], "a node in it has no field span"),
        ([], "it does not say why"),
    ],
)
def test_what_tvm_says_is_told_without_its_code(said, told):
    message = not_read("mod.json", "Relay", said).message
    assert message.startswith("TVM cannot read mod.json as a Relay module: ")
    assert told in message and "Error" not in message


ARRAY, LIST = 0xDD5E40F096B4A13F, 0xF7E58D4F05049CB7
VALUES = np.arange(6, dtype="float32").reshape(2, 3)


def array(values=VALUES, code=2, bits=32, magic=ARRAY, rank=None, size=None):
    data = values.tobytes()
    about = magic, 0, 1, 0, values.ndim if rank is None else rank, code, bits, 1
    head = struct.pack("<QQiiiBBH", *about) + struct.pack(f"<{values.ndim}q", *values.shape)
    return head + struct.pack("<q", len(data) if size is None else size) + data


def params(*arrays, names=("a", "b"), magic=LIST, count=None, again=None):
    count = len(arrays) if count is None else count
    listed = [n if isinstance(n, bytes) else n.encode() for n in names[: len(arrays)]]
    named = b"".join(struct.pack("<Q", len(n)) + n for n in listed)
    again = struct.pack("<Q", count if again is None else again)
    return struct.pack("<QQQ", magic, 0, count) + named + again + b"".join(arrays)


def test_what_was_written_is_read():
    flags = np.array([0, 1, 2], np.uint8)  # as C has them, any number but 0 is true
    found = read_params(params(array(), array(flags, 1, 1)), "w.params")
    assert np.array_equal(found["a"], VALUES)
    assert found["b"].tolist() == [False, True, True]
    with pytest.raises(ValueError, match="more bytes follow"):
        read_array(array() + b"\0")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (params(array())[:-1], "it ends too early"),
        (params(magic=1), "does not begin like TVM parameters"),
        (params(count=10**9), "more than 100,000 arrays"),
        (params(array(), again=3), "not have as many arrays as names"),
        (params(array(), array(), names=("a", "a")), "the same name twice"),
        (params(array(), names=(b"\xff",)), "a name is not UTF-8"),
        (params(array(magic=1)), "does not begin like a TVM array"),
        (params(array(code=4)), "an unsupported dtype (code 4, 32 bits)"),
        (params(array(rank=99)), "has 99 dimensions"),
        (params(array(size=2**62)), "does not match its shape"),
    ],
)
def test_what_is_wrong_is_said(data, why):
    with refused(match="^w.params cannot be read: ", says=why):
        read_params(data, "w.params")


KNOWN = {"R.Tensor", "R.add", "R.const", "R.match_cast", "I.module_attrs", "R.function"}

PLAIN = """
from tvm.script import ir as I

metadata = tvm.ir.load_json("[1]")
n = TypeVar("n")

@I.ir_module
class Module:
    I.module_attrs({"a": 1, "b": [-2.5, True, None]})

    @R.function(private=True)
    def other(x: R.Tensor((2, n * 2), "float32")) -> R.Tensor((2, 4), "float32"):
        pass
        return x

    @R.function
    def main(x: R.Tensor((2, 4), dtype="float32")):
        with R.dataflow():
            y: R.Tensor((2, 4), dtype="float32") = R.add(x, metadata["ir.Constant"][0])
            z, w = cls.other(y), (x, y)[0]
            R.add(z, w)
        return z
"""


def checked(text):
    return check_script(text, lambda path: ".".join(path) in KNOWN, "model.py")


def test_a_module_is_written_anew_without_its_imports_and_a_function_is_one():
    text, metadata = checked(PLAIN)
    assert "import" not in text
    assert metadata == "[1]"
    assert text.startswith("n = TypeVar('n')\n@I.ir_module\nclass Module:")
    assert checked(text)[0] == text
    assert checked(f'"""A module."""\n{PLAIN}') == checked(PLAIN)
    assert checked("@R.function\ndef main(x):\n    return x")[1] == ""


def function(body, given="x", head="@R.function"):
    return f"{head}\ndef main({given}):\n    {body}"


def kernel(body):
    return module(f"@T.prim_func\n    def k(x):\n        {body}")


def module(body="pass", head="@I.ir_module", name="class Module"):
    return f"{head}\n{name}:\n    {body}"


def test_the_hint_is_not_to_write_it_as_it_was_written():
    with refused(match="that a file may use", hint="before it was compiled") as caught:
        checked(function("return R.call_tir(x)"))
    assert "show_meta" not in caught.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("open('x')", "is neither a function nor a module"),
        ("", "holds 0 modules and functions"),
        (module() + "\n" + module(), "holds 2 modules and functions"),
        (module(name="class Module(Base)"), "has a base class"),
        (module("x = 1"), "is not a function"),
        (module(head="@I.ir_module(x)"), "has an argument that is not allowed"),
        (module(head="@I.ir_module(check_well_formed=f())"), "has an argument that is not"),
        (module(head="@evil"), "is not a decorator"),
        ("class Module:\n    pass", "does not have I.ir_module as its only"),
        (kernel("import os"), "is a statement that is not allowed"),
        (kernel("T.evaluate(T.call_extern('int32', 'system'))"), "is not a Relax operator or type"),
        (kernel("T.macro(x)"), "is not a Relax operator or type"),
        (kernel("y = (1, 2)"), "is not an assignment that"),
        (kernel("y = 'a'"), "is not an assignment that"),
        (kernel("for i in x: pass"), "is a statement that is not allowed"),
        (kernel("for i in range(__import__('os').getpid()): pass"), "is not a Relax operator"),
        (kernel("with open('f'): pass"), "is not a variable"),
        (kernel("x[0] = x.__class__"), "is not a Relax operator or type"),
        (kernel("x[0] = [1] * 9 << 9"), "computes with something other than"),
        ("n = R.add = TypeVar('n')\n", "is neither a function nor a module"),
        ("R.x = metadata = tvm.ir.load_json('[]')\n", "is neither a function nor a module"),
        ("metadata = run('[]')\n", "is not metadata as TVM writes it"),
        ("metadata = tvm.ir.load_json(x)\n", "is not metadata as TVM writes it"),
        (function("return x", "x, *more"), "has arguments that are not allowed"),
        (function("return x", "x=1"), "has arguments that are not allowed"),
        (function("return x", "R"), "is a reserved name"),
        (function("return x", "__x"), "is not a variable name"),
        (function("import os"), "is a statement that is not allowed"),
        (function("for i in x: pass"), "is a statement that is not allowed"),
        (function("with open('f'): pass"), "is not a dataflow block"),
        (function("with R.dataflow(open('f')): pass"), "is not a dataflow block"),
        (function("with R.dataflow() as y: pass"), "is not a dataflow block"),
        (kernel("for x[0] in range(3): pass"), "is not a variable"),
        (kernel("x[0], y = x"), "is not a variable"),
        (function("x.y = x"), "is not a variable"),
        (function("if x:\n        y = x\n    return x"), "is a statement that is not allowed"),
        (
            function("if f():\n        y = x\n    else:\n        y = x\n    return x"),
            "is not a var",
        ),
        (function("if x:\n        import os\n    else:\n        y = x"), "is a statement that is"),
        (function("return y"), "is not a variable"),
        (function("return f(x)(x)"), "calls something other than an operator"),
        (function("return R.add(**x)"), "has arguments that are not allowed"),
        (function("return R.add(x, _a=x)"), "has arguments that are not allowed"),
        (function("return R.evil(x)"), "is not a Relax operator or type"),
        (function("return x.__class__"), "is not a Relax operator or type"),
        (function("return [x for x in x]"), "is an expression that is not allowed"),
        (function("return 'a' * 1000000000"), "computes with something other than"),
        (function("return [x] * 1000000000"), "computes with something other than"),
        (function("return {**x}"), "has an item without a key"),
        (function("return 1 << 9"), "is an expression that is not allowed"),
        (function(f"return {1 << 64}"), "is a number of more than 64 bits"),
        (function("return 1j"), "is not a number"),
        (function("return '__import__'"), "is a text, but not a dtype"),
        (function("return '9**9'"), "is a text, but not a dtype"),
        (function(f"return {'-' * 70}x"), "is nested too deeply"),
        (function(f"return {'(' * 300}x{')' * 300}"), "too"),
        ("def :", "line 1: invalid syntax"),
        ("\0", "null bytes"),
    ],
)
def test_what_is_no_plain_computation_is_refused_with_its_line(text, why):
    with refused("file", "^Cannot read model.py as TVMScript: ", says=why):
        checked(text)


def test_parameters_of_types_are_refused_as_python_3_12_reads_them(monkeypatch):
    tree = ast.parse(function("return x"))
    tree.body[0].type_params = [ast.Name("T")]  # `def main[T: run()](x)`, whose bound TVM would see
    with monkeypatch.context() as patched, refused("file", "has type parameters"):
        patched.setattr(ast, "parse", lambda text: tree)
        checked("")
