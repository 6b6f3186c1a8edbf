"""Files of TVM's programs, taken apart without any TVM: archives, parameters, what is none."""

import tarfile

import numpy as np
import pytest

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.files import program_file, tvm_json
from relascope.engine.files.program_file import check_params, not_read, taken_apart

RELAY = '#[version = "0.0.5"]\ndef @main(%x: int64) { %x }'
LIBRARY = b"\x7fELF\x02\x01\x01" + bytes(57)


@pytest.mark.parametrize("check", [tvm_json.check_relay_json, tvm_json.check_relax_json])
def test_json_has_only_so_many_nodes(check, monkeypatch):
    monkeypatch.setattr(tvm_json, "_NODES", 3)
    with pytest.raises(EngineError, match="more than 3 nodes"):
        check('{"nodes": [1, 2, 3, 4]}', "mod.json")


def archive(folder, **members):
    path = folder / "mod.tar"
    with tarfile.open(path, "w") as made:
        for name, data in members.items():
            (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
            made.add(folder / name, name.replace("_", "."))
    return path


def refused(path):
    with pytest.raises(EngineError) as caught:
        taken_apart(path)
    assert caught.value.kind == "file"
    return caught.value


def test_the_program_of_an_archive_is_found(tmp_path):
    found = taken_apart(archive(tmp_path, mod_relay=RELAY, note_txt="hello"))
    assert (found.format, found.text, dict(found.params)) == ("relay", RELAY, {})


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"a_relay": RELAY, "b_relay": RELAY}, "holds 2 programs"),
        ({"note_txt": "hello"}, "holds no program that is known here"),
        ({"mod_relay": RELAY.encode() + b"\xff"}, "is not UTF-8"),
    ],
)
def test_an_archive_without_one_program_is_refused(tmp_path, members, why):
    assert why in refused(archive(tmp_path, **members)).message


def test_a_library_has_kernels_and_no_program(tmp_path):
    (tmp_path / "lib.so").write_bytes(LIBRARY)
    assert "is a compiled library" in refused(tmp_path / "lib.so").message


def test_archives_have_limits(tmp_path, monkeypatch):
    path = archive(tmp_path, mod_relay=RELAY, note_txt="hello")
    monkeypatch.setattr(program_file, "_TEXT", 10)
    assert "a program's text at most" in refused(path).message
    monkeypatch.setattr(program_file, "_MEMBERS", 1)
    assert "has more than 1 members" in refused(path).message


def test_a_damaged_archive_is_told(tmp_path):
    path = archive(tmp_path, mod_relay=RELAY * 400)
    path.write_bytes(path.read_bytes()[:2000])
    assert "cannot be read as an archive" in refused(path).message


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"y": np.zeros(2, "float32")}, "has a parameter 'y', which is no argument"),
        ({"x": np.zeros(3, "float32")}, r"is float32[3], and the program takes float32[2]"),
    ],
)
def test_parameters_fit_their_program(params, why):
    with pytest.raises(EngineError) as caught:
        check_params(params, {"x": TensorType((2,), "float32")}, "mod.tar")
    assert why in caught.value.message


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
    assert message.startswith("mod.json is no Relay module that TVM reads: ")
    assert told in message and "Error" not in message
