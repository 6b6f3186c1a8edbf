"""Sessions as data: their JSON and their addresses."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import refused
from graphs import graph_of
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.times import TimeResult, TimeRow
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import Joint, cut
from relascope.viz.rows import timings
from relascope.viz.sessions import address, facts, results, state

NEW = state.Session(model=state.ModelChoice(batch=1, tokens=14))
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("engine", "tvm"),
        ("model", "../../etc/passwd"),
        ("file", "x" * 32),
        ("batch", "-1"),
        ("batch", "9" * 5000),
        ("tokens", "many"),
        ("seed", "1e3"),
        ("node", "x" * 20_000),
        ("mode", "no"),
        ("gradient", "mine"),
        ("pipeline", "cse|nothing_such"),
        ("pipeline", "|(|"),
        ("tab", "<img src=x>"),
        ("step", "x"),
        ("strategy", "none"),
        ("budget", "101"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_said(name, value):
    found, wrong = address.session_of({name: [value], "below": ["3"]})
    assert found == replace(NEW, look=state.ScreenState(fewer_than=3))
    assert len(wrong) == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("version",), None),
        (("ir",), ["relay"]),
        (("model",), None),
        (("model", "batch"), "1"),
        (("model", "batch"), True),
        (("model", "digest"), "../.."),
        (("pipeline",), "cse|nothing_such"),
        (("pipelines",), {"pipeline_relay_inference": "cse|nothing_such"}),
        (("pipelines",), {"ir": "cse"}),
        (("cut", "save"), [1]),
        (("look", "modules"), {"graph_view": {"layers": "open"}}),
        (("look", "choices"), {"keep_layout": {}}),
        (("results",), []),
    ],
)
def test_a_text_that_is_no_session_is_refused(path, value):
    document = json.loads(FULL.text())
    at = document
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    with refused("session"):
        state.from_text(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", b"\xff", "[" * 100_000])
def test_a_text_that_is_no_json_is_refused(text):
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
