"""Sessions as data, in JSON and addresses; where they are kept, and the files they travel in."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import refused
from graphs import graph_of
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import file_digest
from relascope.engine.protocol.times import TimeResult, TimeRow
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import Joint, cut
from relascope.viz.rows import timings
from relascope.viz.sessions import address, facts, replay, results, state, store
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


def test_a_folder_or_a_database_that_cannot_be_used_is_said(monkeypatch, file):
    store.folder().mkdir(parents=True)
    (store.folder() / "sessions.db").write_bytes(b"nonsense" * 1000)
    with refused("session", "cannot be kept"):
        store.entries()
    monkeypatch.setenv("XDG_DATA_HOME", str(file))
    with refused("session", "cannot be kept"):
        store.put("a", NEW, "")


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
    with refused("session", "its saved inputs are not what the session names"):
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


def of_model(name):
    return replace(NEW, model=ModelChoice(name, "0" * 32)).text()


ERRORS = {"comparisons": [{"max_rel": []}]}
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
    "errors": archive(session__json=written(results={"errors": ERRORS})),
    "a name with an end": archive(session__json=of_model("m\0.pt"), model="other"),
    "another model": archive(session__json=of_model("m.pt"), model="other"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_none_is_refused(tmp_path, name):
    with refused("session"):
        replay.read(io.BytesIO(BAD[name]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def error(value, dtype="float32"):
    return {"name": "output 0", "max_abs": value, "max_rel": value, "dtype": dtype}


def test_what_differs_is_said():
    places = [{"error": {"kind": "a", "where": where}} for where in ("/a", "/b")]
    kinds = [{"error": {"kind": kind}} for kind in ("pass", "target")]
    types = error(1e-7), error(1e-7, "float64")
    same = (1e-7, 9e-7), (0.5, 0.501), ("nan", "nan"), ("inf", "inf")
    other = (1e-7, 1e-4), (0.5, 0.6), ("nan", 0.5)
    for pair in (({"a": [1, 2]},) * 2, places, *(map(error, values) for values in same)):
        assert not [*changes_of(*pair)], pair
    lists = ({"a": [1, 2]}, {"a": [1, 3]}), ({"a": [1]}, {"a": [1, 2]}), ({"a": 1}, {})
    for pair in (*lists, kinds, types, *(map(error, values) for values in other)):
        assert [*changes_of(*pair)], pair


def test_files_that_were_opened_are_listed_once_the_last_first(file, tmp_path):
    other = tmp_path / "other.onnx"
    other.write_bytes(b"another")
    store.put("a", of_file(file), "first")
    store.put("b", replace(NEW, model=ModelChoice("other.onnx", file_digest(other))), "second")
    store.put("c", replace(of_file(file), ir="relax"), "first, in Relax")
    store.put("d", NEW, "a sample")
    assert [f[1:] for f in store.files(9)] == [("c", "model.pt"), ("b", "other.onnx")]
    assert len(store.files(1)) == 1


FULL = state.Session(
    ir="relay",
    model=state.ModelChoice("bert_layer", "", 3, 9, "", 7, "float64", True, "tvm"),
    pipeline="cse|-fold|gradient",
    cut=state.CutChoice("frontier", 40, 4096, "measured", ("a", "b"), ("c",), True),
    build=state.Compile("llvm -mcpu=core-avx2", 2, 10),
    look=state.ScreenState("Gradient & cut", 1, "group:layers.0", 5),
)


def query(session):
    said = address.written(session)
    return {name: [v] if isinstance(v, str) else v for name, v in said.items()}


@pytest.mark.parametrize("session", [NEW, FULL])
def test_what_is_written_is_read_again(session):
    assert address.session_of(query(session)) == (session, [])
    assert state.from_text(session.text()) == session


def test_an_address_names_the_engine_as_the_command_line_and_a_new_page_nothing():
    assert address.written(replace(NEW, ir="relax")) == {"engine": "relax"}
    assert address.knows("engine") and address.knows("ir")
    assert address.session_of({"engine": ["Relax"]})[0].ir == "relax"
    assert address.written(NEW) == {}


def test_more_than_an_address_says_is_in_the_text_or_comes_from_the_session_before():
    look = replace(FULL.look, modules={"joint_view": {"*": False, "forward:layers": True}})
    session = replace(FULL, look=look, pipelines={"pipeline_relax_inference": "canonicalize"})
    assert state.from_text(session.text()) == session
    base = replace(FULL, build=replace(FULL.build, variants=("library",)), engines={"relay": "1"})
    found, wrong = address.session_of({"step": ["2"]}, base)
    assert (found.build.variants, found.engines, wrong) == (("library",), {"relay": "1"}, [])
    assert (found.look.step, found.pipeline, found.cut) == (2, "", state.CutChoice())


WRONG = (
    "engine=tvm model=../../etc/passwd batch=-1 tokens=many seed=1e3 mode=no gradient=mine"
    " pipeline=cse|nothing_such pipeline=|(| tab=<img/src=x> step=x strategy=none budget=101"
)
LONG = f"file={'x' * 32}", f"batch={'9' * 5000}", f"node={'x' * 20_000}"


@pytest.mark.parametrize("pair", [*WRONG.split(), *LONG])
def test_what_cannot_be_read_is_left_out_and_said(pair):
    name, _, value = pair.partition("=")
    found, wrong = address.session_of({name: [value], "below": ["3"]})
    assert found == replace(NEW, look=state.ScreenState(fewer_than=3))
    assert len(wrong) == 1


STRANGE = {
    "": {"version": (2, None), "ir": (["relay"],), "model": (None,), "results": ([],)},
    "model": {"batch": ("1", True), "digest": ("../..",)},
    "cut": {"save": ([1],)},
    "look": {"modules": ({"graph_view": {"layers": "open"}},), "choices": ({"keep_layout": {}},)},
}
STRANGE[""]["pipeline"] = ("cse|nothing_such",)
STRANGE[""]["pipelines"] = {"pipeline_relay_inference": "cse|nothing_such"}, {"ir": "cse"}


def test_a_text_that_is_no_session_or_no_json_is_refused():
    texts = ["", "[]", "null", "{", b"\xff", "[" * 100_000]
    for part, fields in STRANGE.items():
        for name, value in ((name, value) for name, values in fields.items() for value in values):
            document = json.loads(FULL.text())
            (document[part] if part else document)[name] = value
            texts.append(json.dumps(document))
    for text in texts:
        with refused("session"):
            state.from_text(text)


NASTY = st.sampled_from(
    ["", "-1", "9" * 400, "1e3", "nan", "../x", "\x00", "\ud800", "a|b", "cse|fold", "Passes"]
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*query(FULL), "session", "file", "module", "call", "weights", "inputs"]),
        st.lists(NASTY | st.text(max_size=12), max_size=3),
    )
)
def test_any_address_gives_a_session_that_is_one(strange):
    found, _ = address.session_of({**query(FULL), **strange})
    assert state.faults_of(found) == []
    assert address.session_of(query(found)) == (found, [])


def test_a_session_in_words():
    steps = [
        {"pass_name": "cse", "enabled": True, "nodes": 9, "added": 0, "removed": 2, "changed": 1},
        {"pass_name": "fold", "enabled": False},
        {"pass_name": "bind", "error": {"message": "No."}},
    ]
    cut = {"captures": ["a"], "bytes": 12}
    graphs = {"-1": {"nodes": 9, "edges": 8, "hash": "0123456789"}, "2": {"error": {}}}
    errors = {"comparisons": [{"name": "output 0", "max_abs": 0.5}]}
    results = {"steps": steps, "cut": cut, "graphs": graphs, "errors": errors}
    said = facts.of(replace(FULL, results=results, engines={"relay": "0.9"}))
    assert said["IR"] == "Relay" and said["TVM"] == "0.9"
    assert list(said["step"].values()) == ["9 nodes, 0 added, 2 removed, 1 changed", "off", "No."]
    assert said["graph"]["imported"] == "9 nodes, 8 edges (01234567)"
    assert "after step 3" in said["graph"]
    assert said["captures"] == "1, 12 bytes" and said["error of"] == {"output 0": "0.5"}
    assert said["cut"]["save"] == "a, b" and said["time of"] == {}
    assert facts.of(NEW)["captures"] is None
    wrong = facts.of(replace(NEW, results={"cut": {"error": {"message": "No."}}}))
    assert wrong["captures"] == "No."


@pytest.mark.parametrize("document", [{}, {"rows": [{"of a later version": 1}], "threads": "x"}])
def test_a_timing_is_shown_from_its_result_whatever_its_document_says(document):
    row = TimeRow("pytorch eager", "forward", 1.0, 0.9, 1.1, None, None, None, (1.0,))
    result = TimeResult("a machine", "llvm", 2, (row,), (), 0.5)
    request = BuildRequest(NEW.model.source(), default_pipeline("relay", False), "llvm")
    timing = state.Timing("mlp", request, result, {"when": "now", **document})
    shown = timings.run_sections(timing.run, timing.title)
    assert ["2", "threads"] in shown[0]["items"] and ["now", ""] in shown[0]["items"]


def test_the_rate_of_copies_to_the_host_is_kept_with_a_cut_that_has_them():
    chain = graph_of("x; g; a exp x; y exp a; d multiply g a; dx multiply d a", "y", gradients="dx")
    joint = Joint(replace(chain, ir="relax"), copied=5e9)
    facts = results.cut_facts(cut(joint, save=["host:a"]))
    assert facts["captures"] == ["host:a"]
    assert results._noted({"cut": facts})[0] == (None, 5e9)
    assert "copied" not in results.cut_facts(cut(joint, save=["a"]))
    for rate in (0.0, -1.0, "fast"):
        with refused("session"):
            results._noted({"cut": {"copied": rate}})
