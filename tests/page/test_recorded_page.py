"""The page on a recording of a compile, without a browser, a TVM or an engine."""

import base64
import json
import zlib
from unittest.mock import Mock

import pytest

from crafted.recorded import HOSTILE, recorded
from engines import shared
from graphs import graph_of
from page import sent, settle, whole_page, words
from relascope.core.errors import EngineError
from relascope.engine.protocol.source import file_digest
from relascope.passes.pipeline import Pipeline
from relascope.recorder.reading import read
from relascope.viz.compare.recording import RecordedCompile
from relascope.viz.panels.shell import keeping, tab_engines
from relascope.viz.panels.steps import changes
from relascope.viz.panels.steps.recorded import board
from relascope.viz.sessions import replay, store


@pytest.fixture(autouse=True)
def engines(monkeypatch):
    error = AssertionError("no engine is needed")
    monkeypatch.setattr(tab_engines, "EngineClient", Mock(side_effect=error))


@pytest.fixture
def opened(monkeypatch, tmp_path):
    def open_(path=None, **query):
        monkeypatch.setenv(store.OPEN, str(path or ""))
        page = whole_page()
        page.query_params.update(query)
        return run(page)

    return open_


@pytest.fixture
def page(opened, tmp_path):
    return opened(recorded(tmp_path / "run.rsc"))


def run(page):
    page.run()
    assert not page.exception
    return page


def choose(page, number):
    page.session_state["recorded_pass"] = number
    return run(page)


def text(page):
    page.segmented_control(key="keep_step_colours").set_value("Text")
    return run(page)


def test_it_opens_on_the_pass_that_failed_and_says_why(page):
    assert "Breaks" in words(page)
    assert page.warning[0].value.startswith("The compile failed in pass 6, Breaks: ")
    assert "ValueError: no axis 7 here" in page.error[0].value
    assert "in kernel" in page.code[0].value
    rows = sent(page, "step_list")
    fields = "title", "depth", "changed", "idle", "stop", "slow", "bad"  # it stops at what changed
    assert [tuple(r[field] for field in fields) for r in rows] == [
        ("sequential", 0, 2, False, False, True, ""),
        ("FoldTranspose", 1, 1, False, True, True, ""),
        ("InferType", 1, 0, True, False, True, ""),
        (HOSTILE, 1, 1, False, True, False, ""),
        ("tir.Simplify", 0, 1, False, True, False, ""),
        ("Breaks", 0, 0, False, False, False, "failed"),
    ]
    assert [(r["own"], r["share"]) for r in rows[:2]] == [("240 ms", 48), ("500 ms", 100)]


def test_the_graph_of_a_pass_has_what_changed_and_the_text_stands_in_two_columns(page):
    choose(page, 1)
    assert sent(page, "step_text") is None
    assert [c for c in page.dataframe[0].value["what"]] == ["removed", "changed"]
    text(page)
    told = sent(run(page), "step_text")
    assert told["changed"] == 3
    assert told["same"] == [True, False, True]
    (gone, turned) = told["rows"][1]
    assert gone == [[2, [["  %0' = transpose(w);", True]]], None]
    assert [part for part, marked in turned[1][1] if marked]
    # The function is followed or stays, and names are text.
    choose(page, 4)
    function = page.selectbox(key="keep_recorded_function")
    assert function.options == ["What it changed first", "kernel", "main"]
    assert "kernel: changed" in words(page)
    assert sent(page, "step_text")["changed"] == 2
    function.set_value("main")
    run(page)
    assert "main: unchanged. The pass changed kernel" in words(page)
    said = words(choose(page, 3))
    assert "&lt;img" in said and "<img" not in said.replace("\\<img", "")
    assert page.selectbox(key="keep_recorded_function").value == "main"
    page.selectbox(key="keep_recorded_function").set_value("")
    assert "kernel: made by the pass" in words(run(page))


def test_a_kernel_has_the_text_that_it_has_at_its_pass(tmp_path):
    graph = graph_of("x; a kernel x writes=[1]; b other a call='call_tir'")
    its, texts = RecordedCompile(read(recorded(tmp_path / "run.rsc", drawn=lambda _: graph))), []
    for run in its.recording.passes[3:5]:
        program = its.source, Pipeline((its.step_of(run),)), 0
        texts.append(its("graph_after", *program).kernels)
        assert texts[-1] == {"kernel": its.recording.text(run.after["kernel"])}
        assert its("graph_after", *program) is its("graph_after", *program)
    assert texts[0] != texts[1]


def test_a_plan_of_memory_names_the_nodes_that_are_drawn(opened, tmp_path, monkeypatch):
    def drawn(before):
        own = "a builtin.alloc_tensor"
        placed = "s memory.alloc_storage total_space=[32]; b memory.alloc_tensor s offset=0"
        if before:
            return graph_of(f"x; {own}; p scale x a writes=[1]", ir="relax")
        return graph_of(f"x; {placed}; q scale x b writes=[1]", ir="relax")

    shown = []
    monkeypatch.setattr(changes, "memory", lambda document, *where: shown.append(document))
    page = opened(recorded(tmp_path / "run.rsc", drawn=drawn))
    for number in (1, 2):
        page.session_state["keep_recorded_function"] = "main"
        choose(page, number)
        (tensor,) = shown[-1]["tensors"]
        assert tensor["id"] == "p" in sent(page, keeping.RECORDED_VIEW)["node"]["id"]


def test_a_file_of_a_session_that_cannot_be_read_says_why(page, monkeypatch):
    error = EngineError("session", "It was kept by another version.", "a session")
    monkeypatch.setattr(store, "get", Mock(side_effect=error))
    (again,) = (b for b in run(page).button if b.label.startswith("run"))
    again.click()
    assert "kept by another version" in words(run(page))


def test_times_say_where_it_went(page, tmp_path):
    page.session_state["keep_recorded_tab"] = "Times"
    run(page)
    totals = page.dataframe[0].value
    assert list(totals["pass"])[:2] == ["FoldTranspose", "InferType"]
    assert list(totals["own ms"])[:2] == [500, 250]
    assert "kernel" in totals["in which functions"].loc[list(totals["pass"]).index(HOSTILE)]
    page.session_state["recorded_times_of"] = file_digest(tmp_path / "run.rsc"), "InferType"
    assert "Runs of InferType" in words(run(page))
    page.session_state["recorded_times_of"] = "another recording's", "InferType"
    assert "Runs of" not in words(run(page))


def test_an_address_and_a_session_bring_it_back(page, opened, tmp_path):
    choose(page, 4)
    page.selectbox(key="keep_recorded_function").set_value("main")
    run(page)
    said = dict(page.query_params)
    assert said["model"] == "run.rsc" and said["step"] == "4" and said["function"] == "main"
    session = said.pop("session")
    (tmp_path / "run.rsc").unlink()  # it is kept beside the sessions
    for query in (said, {"session": session}):
        again = opened(**query)
        assert again.session_state["recorded_pass"] == 4
        assert again.selectbox(key="keep_recorded_function").value == "main"
    (entry,) = [e for e in store.entries() if e.id == session]
    assert entry.about == "run.rsc, recording of a compile"
    file = tmp_path / "session.zip"
    kept = store.get(session)
    replay.write(file, kept, store.model_file(kept.model.digest))
    read, path = replay.read(file, tmp_path)
    assert read == kept and path.endswith("run.rsc")


def test_the_way_back_to_a_model(page, monkeypatch):
    client = shared("relay", "page_session:PageSession")
    monkeypatch.setattr(tab_engines, "EngineClient", lambda ir: client)
    page.sidebar.selectbox(key="keep_model").set_value("mlp")
    settle(run(page))
    assert "Compile & time" in [t.label for t in page.tabs]
    assert page.query_params["model"] == "mlp"
    page.sidebar.selectbox(key="keep_model").set_value("A file of your own")
    assert [t.label for t in run(page).tabs] == ["Passes", "Times", "Side by side"]
    client.stop()


def test_a_recording_without_graphs_or_contents(opened, tmp_path):
    page = choose(opened(recorded(tmp_path / "run.rsc", graphs=False)), 1)
    assert sent(page, "step_text")["changed"] == 3
    names = (tmp_path / "run.rsc").read_text().splitlines()
    lines = [json.loads(x) for x in names if '"zlib"' not in x]
    for line in lines:
        line.pop("module", None)
    (tmp_path / "names.rsc").write_text("".join(json.dumps(x) + "\n" for x in lines))
    page = choose(opened(tmp_path / "names.rsc"), 1)
    assert "only names and times" in words(page)


def test_a_module_that_was_recorded_is_opened_as_a_model(opened, tmp_path, monkeypatch):
    path = recorded(tmp_path / "run.rsc")
    lines = path.read_text().replace('"level": "text"', '"level": "modules"', 1).splitlines()
    packed = base64.b64encode(zlib.compress(b'{"root_index": 1}')).decode()
    at = next(i for i, x in enumerate(lines) if '"begin": 2' in x)
    lines.insert(at, json.dumps({"json": "1", "zlib": packed}))
    path.write_text("\n".join([*lines, ""]))
    page = choose(opened(path), 3)
    page.button(key="recorded_model_True").click()
    said = "The recording has no module after pass 4. It is not in the file."
    assert said in run(page).error[0].value
    client = shared("relax", "page_session:PageSession")
    monkeypatch.setattr(tab_engines, "EngineClient", lambda ir: client)
    page.button(key="recorded_model_False").click()
    settle(run(page))  # the address says it once it is open
    assert "Compile & time" in [t.label for t in page.tabs]
    said = dict(page.query_params)
    assert (said["model"], said["engine"]) == ("before_4__img_src_x_onerror_alert_1_.json", "relax")
    client.stop()


def test_damage_is_a_sentence_and_the_page_goes_on(opened, tmp_path):
    path = recorded(tmp_path / "run.rsc")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert "in the middle of a line" in words(opened(path))
    path.write_bytes(whole.replace(b'"end"', b'"ond"', 1))
    page = opened(path)
    assert "damaged in line" in page.error[0].value
    assert page.sidebar.selectbox(key="keep_model").value == "A file of your own"
    first = whole.index(b'"zlib": "') + len(b'"zlib": "')
    path.write_bytes(whole[:first] + b"AAAA" + whole[first + 4 :])
    page = text(choose(opened(path), 1))
    assert "is damaged, or has changed" in page.error[0].value
    assert not choose(page, 4).error


def test_what_is_hostile_stays_within_limits(opened, tmp_path):
    path = recorded(tmp_path / "run.rsc")
    lines = path.read_text().splitlines()
    bomb = {"zlib": base64.b64encode(zlib.compress(b"a" * (65 << 20))).decode()}
    lines = [json.dumps(json.loads(x) | bomb) if x.startswith('{"text"') else x for x in lines]
    begin = {"depth": 199, "name": "deep", "opt_level": 0, "module": None}
    deep = [json.dumps({"begin": n, **begin}) for n in range(6, 200)]
    path.write_text("\n".join([*lines, *deep, ""]))
    page = choose(opened(path), 4)
    assert "is damaged" in page.error[0].value
    depths = [r["depth"] for r in sent(page, "step_list")]
    assert max(depths) == 194, "no deeper than there are passes around it"
    board._do("switch", 2, enabled=True)  # of a pipeline's list, late: nothing to do, and no error
