"""Files of TVM's programs, taken apart without any TVM: archives, parameters, what is none."""

import json
import tarfile

import numpy as np
import pytest

from answers import refused
from relascope.core.graph import TensorType
from relascope.engine.files import program_file, tvm_json
from relascope.engine.files.program_file import check_params, not_read, taken_apart

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
