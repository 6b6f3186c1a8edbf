"""Where sessions are kept, and the files that they travel in."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from answers import refused
from relascope.core.errors import EngineError
from relascope.engine.protocol.source import file_digest
from relascope.viz.sessions import replay, store
from relascope.viz.sessions.results import changes_of
from relascope.viz.sessions.state import ModelChoice, Session

NEW = Session(model=ModelChoice(batch=1, tokens=14))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"a model")
    return path


def of_file(file):
    return replace(NEW, model=ModelChoice("model.pt", file_digest(file)))


def test_sessions_are_listed_renamed_and_deleted():
    store.put("a", NEW, "first")
    store.put("b", replace(NEW, ir="relax"), "second")
    store.rename("a", " mine ")
    store.put("a", replace(NEW, ir="relax"), "first again")
    assert [(e.id, e.title) for e in store.entries()] == [("a", "mine"), ("b", "second")]
    assert store.get("a").ir == "relax"
    store.delete("a")
    assert [e.id for e in store.entries()] == ["b"]
    assert store.get("a") is None


def test_the_oldest_without_a_name_go(monkeypatch):
    monkeypatch.setattr(store, "UNNAMED", 2)
    for ident in "abcd":
        store.put(ident, NEW, ident)
        if ident == "a":
            store.rename("a", "named")
    assert {e.id for e in store.entries()} == {"a", "c", "d"}


def test_a_models_file_stays_as_long_as_a_session_has_it(file):
    digest = file_digest(file)
    for ident in "ab":
        store.put(ident, of_file(file), ident)
        store.keep_model(str(file), digest)
    assert store.model_file(digest).read_bytes() == b"a model"
    store.delete("a")
    assert store.model_file(digest).name == "model.pt"
    store.delete("b")
    assert store.model_file(digest) is None


def test_a_folder_that_cannot_be_used_is_said(monkeypatch, file):
    monkeypatch.setenv("XDG_DATA_HOME", str(file))
    with refused("session", "cannot be kept"):
        store.put("a", NEW, "")


def test_a_database_that_is_none_is_said():
    store.folder().mkdir(parents=True)
    (store.folder() / "sessions.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(EngineError, match="cannot be kept"):
        store.entries()


def test_a_file_has_session_model_and_saved_inputs(file, tmp_path):
    tensors = tmp_path / "x.npy"
    tensors.write_bytes(b"some")
    digest, data, folder = file_digest(tensors), io.BytesIO(), tmp_path / "taken"
    kept = of_file(file)
    kept = replace(kept, model=replace(kept.model, tensors=(digest,), pins="x.0=4"))
    replay.write(data, kept, file, [tensors])
    folder.mkdir()
    session, path = replay.read(data, folder)
    source = session.model.source(path)
    assert session == kept and source.pins == (("x.0", 4),)
    assert Path(path).read_bytes() == b"a model"
    assert [(Path(p).read_bytes(), d) for p, d in source.tensors] == [(b"some", digest)]
    tensors.write_bytes(b"others")
    replay.write(data := io.BytesIO(), kept, file, [tensors])
    (again := tmp_path / "again").mkdir()
    with pytest.raises(EngineError, match="its saved inputs are not what the session names"):
        replay.read(data, again)


def archive(**members):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as out:
        for name, text in members.items():
            out.writestr(name.replace("__", "."), text)
    return data.getvalue()


def encrypted(data):
    data = bytearray(data)
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def written(**changes):
    return json.dumps({**json.loads(NEW.text()), **changes})


ATOM = json.loads("[" * 60 + "]" * 60)
GOOD = {"session__json": NEW.text()}
BAD = {
    "no archive": b"nonsense",
    "nothing": b"",
    "empty": archive(),
    "another member": archive(**GOOD, **{"../../x": "x"}),
    "cut short": archive(**GOOD)[:-30],
    "turned over": archive(**GOOD)[:60] + bytes(40) + archive(**GOOD)[100:],
    "encrypted": encrypted(archive(**GOOD)),
    "no JSON": archive(session__json="no"),
    "a bomb": archive(session__json=" " * (33 << 20)),
    "deep": archive(session__json="[" * 200_000),
    "in one another": archive(session__json=written(results={"a": ATOM})),
    "half a character": archive(session__json=written(engines={"relay": "\ud800"})),
    "a large number": archive(session__json=written(results={"a": 10**400})),
    "no number": archive(session__json=written(results={"a": float("nan")})),
    "captures": archive(session__json=written(results={"cut": {"captures": 3}})),
    "errors": archive(
        session__json=written(results={"errors": {"comparisons": [{"max_rel": []}]}})
    ),
    "a name with an end": archive(
        session__json=replace(NEW, model=ModelChoice("m\0.pt", "0" * 32)).text(), model="other"
    ),
    "another model": archive(
        session__json=replace(NEW, model=ModelChoice("m.pt", "0" * 32)).text(), model="other"
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_none_is_refused(tmp_path, name):
    with refused("session"):
        replay.read(io.BytesIO(BAD[name]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def error(value, dtype="float32"):
    return {"name": "output 0", "max_abs": value, "max_rel": value, "dtype": dtype}


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
        ({"a": [1, 2]}, {"a": [1, 3]}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": 1}, {}, False),
        (error(1e-7), error(9e-7), True),
        (error(1e-7), error(1e-4), False),
        (error(0.5), error(0.501), True),
        (error(0.5), error(0.6), False),
        (error("nan"), error("nan"), True),
        (error("nan"), error(0.5), False),
        (error("inf"), error("inf"), True),
        (error(1e-7), error(1e-7, "float64"), False),
        ({"error": {"kind": "a", "where": "/a"}}, {"error": {"kind": "a", "where": "/b"}}, True),
        ({"error": {"kind": "pass"}}, {"error": {"kind": "target"}}, False),
    ],
)
def test_what_differs_is_said(then, now, same):
    assert (not list(changes_of(then, now))) is same


def test_files_that_were_opened_are_listed_once_the_last_first(file, tmp_path):
    other = tmp_path / "other.onnx"
    other.write_bytes(b"another")
    store.put("a", of_file(file), "first")
    store.put("b", replace(NEW, model=ModelChoice("other.onnx", file_digest(other))), "second")
    store.put("c", replace(of_file(file), ir="relax"), "first, in Relax")
    store.put("d", NEW, "a sample")
    assert [(f.id, f.name) for f in store.files(9)] == [("c", "model.pt"), ("b", "other.onnx")]
    assert len(store.files(1)) == 1
