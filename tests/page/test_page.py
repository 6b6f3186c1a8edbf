"""The page's logic, tab by tab, without a browser and without a TVM (tests/page_session.py)."""

import json
import os
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest
import streamlit as st

import page_session
from page import INFERENCE, open_tab, press, put, says, settle, step, table_with, training, words
from relascope.core.errors import EngineError
from relascope.engine.protocol.results import StepRecord
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import STRATEGIES
from relascope.passes.pipeline import Pipeline
from relascope.viz.panels.shell import sidebar
from relascope.viz.panels.shell.frame import plain_text
from relascope.viz.panels.shell.request_cache import KEPT, Request, RequestCache, Waiting
from relascope.viz.panels.steps.step_list import act, catch_up
from relascope.viz.rows.step_list import rows as step_rows
from relascope.viz.rows.timings import history_csv, history_json


def test_the_first_look_shows_the_sample_and_its_facts_and_another_can_be_chosen(page):
    says(page, "<b>7</b> nodes", "<b>640</b> parameters", "A note of the import.", "TVM 0.0.test")
    operators = page.dataframe[0].value
    assert list(operators["operator"]) == ["nn.dense", "nn.relu", "transpose"]
    settle(page.sidebar.selectbox(key="keep_model").set_value("mlp").run())
    assert not page.error
    # A sample without tokens has no field for them.
    assert not [n for n in page.sidebar.number_input if n.label == "Tokens"]


def test_an_import_that_fails_is_a_sentence_and_the_page_goes_on(page):
    before = page.session_state["session"], dict(page.query_params)
    settle(page.number_input(key="keep_seed").set_value(page_session.BROKEN_SEED).run())
    for said in ("aten::frobnicate", "Where: `encoder.layer.0, net.py:12`", "Take this module out"):
        assert said in page.error[0].value
    assert (page.session_state["session"], dict(page.query_params)) == before
    settle(page.number_input(key="keep_seed").set_value(0).run())
    assert not page.error
    says(page, "<b>7</b> nodes")


@pytest.mark.parametrize("tab", ["Graph", "Passes"])
def test_beside_a_model_that_cannot_be_opened_are_a_submodule_and_the_way_back(page, tab):
    open_tab(page, tab)
    before = page.session_state["session"]
    settle(page.number_input(key="keep_seed").set_value(page_session.BROKEN_SEED).run())
    press(page, "way_back")
    settle(page.run())  # as a browser says what it has been sent
    assert not page.error
    assert page.number_input(key="keep_seed").value == 0
    assert page.session_state["session"].model == before.model
    settle(page.number_input(key="keep_seed").set_value(page_session.BROKEN_SEED).run())
    assert page.button(key="instead_head").label == "Open head alone"
    press(page, "instead_layers.0")
    assert not page.error and page.session_state["session"].model.module == "layers.0"
    says(page, "Only <code>layers.0</code>")
    assert not [b for b in page.button if b.key == "way_back"]


def test_what_the_list_tells_is_done_once_and_in_order(monkeypatch):
    other, done = Mock(), Mock()
    state = {"step_lists": {"training": other}}
    monkeypatch.setattr(st, "session_state", state)
    catch_up(done)
    what = [{"what": "select", "row": 2}, {"what": "move", "row": 2, "to": 1}]
    what.append({"what": "switch", "row": 3, "enabled": False, "of": "training"})
    numbered = [{"number": number, **deed} for number, deed in enumerate(what, 1)]
    for deeds in (numbered[:1], numbered[:1], numbered):
        state["step_list"] = {"log": {"session": state["step_list_done"][0], "deeds": deeds}}
        catch_up(done)
    assert done.mock_calls == [call(**deed) for deed in what[:2]]
    assert other.mock_calls == [call(what="switch", row=3, enabled=False)], "its list was seen"
    here, taken = sys.modules[catch_up.__module__], Mock()
    pipeline = INFERENCE.upto(1)  # a pipeline pasted meanwhile
    monkeypatch.setattr(here, "current", lambda screen: SimpleNamespace(pipeline=pipeline))
    monkeypatch.setattr(here, "take", taken)
    for row in (3, 2):
        act(None, "switch", row=row, enabled=False)
    assert taken.mock_calls == [call(None, pipeline.switched(1, False), None)]
    # A browser that comes back after the app's end tells what an earlier one has done.
    state["step_list"] = {"log": {"session": "another", "deeds": [{**what[0], "number": 4}]}}
    catch_up(done)
    assert len(done.mock_calls) == 2


def test_a_field_of_a_step_that_is_gone_changes_nothing(page):
    key = sidebar.pipeline_key("relay", False, "tvm")
    page.session_state[key] = "cse|convert_layout"
    open_tab(page, "Passes")
    (field, *_) = (s for s in page.selectbox if str(s.key).startswith("parameter_1"))
    field.set_value("NCHW")
    page.session_state[key] = "cse"
    assert not settle(page.run()).exception
    assert page.session_state[key] == "cse"


def test_next_change_walks_over_what_the_step_touched(page):
    open_tab(page, "Passes")
    assert page.button(key="next_change").disabled  # the last step changes nothing
    put(page, step_inference=[s.name for s in INFERENCE].index("fold"))
    for expected in ("Next change 1 of 1", "Next change 1 of 1"):
        press(page, "next_change")
        assert page.button(key="next_change").label == expected


def test_a_pipeline_is_pasted_or_chosen_and_a_malformed_one_is_explained(page):
    open_tab(page, "Passes")

    def chosen():
        return next(s for s in page.selectbox if s.label == "Pipeline")

    def paste(text):
        page.text_input(key="keep_pipeline_text").set_value(text)
        press(page, "use_pipeline")

    assert chosen().value == "relascope's"
    paste("cse|-bind|fold")
    assert page.code[0].value == "cse|-bind|fold"
    assert step(page) == (3, 3)
    paste("cse|nope")
    assert "nope" in page.error[0].value
    settle(chosen().set_value("relascope's").run())
    assert page.code[0].value == str(INFERENCE)
    settle(chosen().set_value("TVM's O3").run())
    assert page.code[0].value == "FoldConstant|FuseOps" and chosen().value == "TVM's O3"
    paste("tvm:O3|-FuseOps")
    assert page.code[0].value == "FoldConstant|-FuseOps" and chosen().value is None


def test_a_browser_that_still_shows_the_default_pipeline_undoes_no_edit(page):
    open_tab(page, "Passes")
    before = next(s for s in page.selectbox if s.label == "Pipeline")._widget_state
    page.text_input(key="keep_pipeline_text").set_value("cse")
    press(page, "use_pipeline")
    late = page._tree.get_widget_states()
    late.widgets.append(before)
    settle(page._run(late))
    assert page.code[0].value == "cse"


def test_a_pass_that_failed_says_why(page):
    page.number_input(key="keep_seed").set_value(page_session.FAILING_SEED)
    open_tab(page, "Passes")
    index = [s.name for s in INFERENCE].index(page_session.FAILING_PASS)
    put(page, step_inference=index)
    assert "a shape it cannot take" in page.error[0].value
    assert "looked at the shape" in [c.value.strip() for c in page.code]


def test_gradient_invites_to_training_and_then_shows_the_cut_of_each_strategy(page):
    open_tab(page, "Gradient & cut")
    assert not page.dataframe
    press(page, "to_training")
    assert page.session_state["keep_mode"] == "Training"
    says(page, "<b>2</b> captures", "<b>2.0 KiB</b>")
    captures = page.dataframe[0].value
    assert [*captures["name"], *captures["bytes"]] == ["nn.dense", "nn.relu", 1024, 1024]
    settle(page.selectbox(key="keep_strategy").set_value("inputs_only").run())
    says(page, "<b>2</b> nodes recomputed")
    for view in ("Forward", "Backward"):
        settle(page.segmented_control(key="keep_cut_view").set_value(view).run())
        assert not page.error
    settle(page.selectbox(key="keep_strategy").set_value("budget").run())
    says(page, "<b>1</b> captures")
    for budget, said in {0: ("<b>0</b> captures", "<b>0 B</b>"), 100: ("<b>2.0 KiB</b>",)}.items():
        settle(page.slider(key="keep_budget").set_value(budget).run())
        says(page, *said)
    open_tab(page, "In your code")
    assert any("--strategy budget --budget 100%" in c.value for c in page.code)


def test_training_without_a_gradient_says_so(page):
    training(page)
    page.session_state["pipeline_relay_training"] = "cse"
    for tab in ("Gradient & cut", "Compile & time"):
        open_tab(page, tab)
        assert "no gradient" in page.error[0].value


def test_timings_show_every_row_slow_ones_in_words_and_are_a_history(page):
    open_tab(page, "Compile & time")
    assert not page.dataframe  # nothing runs unasked
    for repeats in (5, 6):
        page.number_input(key="keep_repeats").set_value(repeats)
        press(page, "run")
        assert len(page.dataframe[0].value) == 2
    assert "1.32× slower than eager" in list(page.dataframe[0].value["against the baseline"])
    assert len(page.dataframe[1].value) == 1
    assert "keeps the machine busy" in words(page)
    assert len(page.selectbox(key="shown_run").options) == 2
    buttons = {b.proto.label for b in page.get("download_button")}
    assert {"2 runs (.csv)", "2 runs (.json)"} <= buttons
    past = [p.document for p in page.session_state["history"].values()]
    assert [d["repeats"] for d in past] == [5, 6]
    head, *lines = history_csv(past).splitlines()
    assert len(lines) == 4 and head.startswith("when,model,batch")
    assert json.loads(history_json(past))["runs"] == past
    settle(page.button_group(key="keep_ways").set_value(["library", "layout"]).run())
    press(page, "run")
    eager, *ours = page.dataframe[0].value.to_dict("records")
    assert (eager["what"], ours[0]["peak memory"]) == ("pytorch eager", "4.0 KiB")
    fast = 0.67, "250 ms"
    wanted = [("relay, cpu", 1.44, "500 ms"), ("relay, library", *fast), ("relay, layout", *fast)]
    assert [(row["what"], row["of minima"], row["build"]) for row in ours] == wanted
    says(page, "library, forward")
    settle(page.button_group(key="keep_ways").set_value([]).run())
    training(page)
    press(page, "run")
    assert [len(d.value) for d in page.dataframe[:2]] == [4, 2]


def test_each_kernel_has_a_row_under_roofs_that_can_be_measured_again(page):
    open_tab(page, "Compile & time")
    press(page, "profile")
    table = table_with(page, "kernel")
    assert list(table["kernel"]) == ["dense", "fused_relu_dense", "fused_add"]
    assert list(table["NaN or Inf"]) == [0, 3, 0]
    assert any("fused_relu_dense" in w.value.replace("\\", "") for w in page.warning)
    says(page, "A note of the profile.", "10.0% (0.100 ms) are not in kernels")
    assert list(table["bound by"]) == ["compute", "compute", "unknown"]
    assert table["of peak"][0] == pytest.approx(51.2)
    says(page, "20 MFLOP/s in float32")
    assert "runs at" not in words(page)  # a kernel is quicker than the peaks
    press(page, "peaks_again")
    assert table_with(page, "kernel")["of peak"][0] == pytest.approx(25.6)
    says(page, "40 MFLOP/s in float32", "runs at 26% of peak")


def test_what_could_be_faster_is_listed_and_its_pass_added(page):
    page.session_state["pipeline_relay_inference"] = "cse"
    open_tab(page, "Compile & time")
    press(page, "lint")
    (row,) = table_with(page, "hazard").to_dict("records")
    assert (row["hazard"], row["removed by"]) == ("Constant work", "bind|fold")
    press(page, "remedy_0")
    assert page.session_state["pipeline_relay_inference"] == "cse|bind|fold"
    press(page, "lint")
    assert "None of the 13 linters" in page.success[0].value


def test_the_accuracy_report_has_the_rows_of_the_command_line(page):
    open_tab(page, "Compile & time")
    press(page, "check_all")
    table = table_with(page, "worst tensor")
    assert len(table) == 2 * (3 + 2 * len(STRATEGIES))
    assert set(table["outcome"]) == {"right"}
    assert "Every stage agrees" in page.success[0].value
    settle(page.multiselect(key="keep_check_inputs").set_value(["tiny", "edges"]).run())
    press(page, "check_all")
    each = table_with(page, "worst tensor")
    assert len(each) == 2 * len(table)
    assert set(each["inputs"]) == {"tiny", "edges"}


def test_a_wrong_stage_shows_its_first_bad_node_in_the_graph(page):
    settle(page.sidebar.number_input(key="keep_seed").set_value(page_session.WRONG_SEED).run())
    open_tab(page, "Compile & time")
    press(page, "check_all")
    table = table_with(page, "worst tensor")
    wrong = table[table["outcome"] == "wrong"]
    assert set(wrong["stage"]) == {"gradient", "cut", "split"}
    assert set(wrong["first bad node"]) == {"nn.relu"}
    assert "gradient: wrong" in page.error[0].value
    put(page, accuracy_table={"selection": {"rows": [2], "columns": [], "cells": []}})
    assert "compared with aten::relu in layers.1" in words(page)


def test_a_target_can_be_typed_and_built_for_without_its_device_or_says_why_not(page):
    def typed(target):  # the test driver can only choose
        open_tab(page, "Graph")
        page.session_state["keep_target"] = target
        open_tab(page, "Compile & time")
        assert page.button(key="run").disabled

    typed("llvm  -mtriple=aarch64-linux-gnu")
    name = "llvm -mtriple=aarch64-linux-gnu"
    says(page, f"{name}: programs built for it cannot be timed here", "It is elsewhere.")
    press(page, "compile")
    says(page, "<b>8.0 KiB</b> library")
    assert list(table_with(page, "machine code")["machine code"]) == ["2.0 KiB"]
    assert any("fma();" in c.value for c in page.code)
    page.segmented_control(key="code_language").set_value("PTX")
    settle(page.text_input(key="code_search").set_value("FMA").run())
    assert "1 lines of PTX in 1 kernels" in words(page)
    assert any("     1  fma.rn.f32;" in c.value for c in page.code)
    typed("cuda")
    assert "this machine has no GPU" in words(page)
    typed("nonsense")
    assert "There is no target nonsense." in page.error[0].value
    assert not [b for b in page.button if b.key in ("compile", "profile")]


def begin_timing(page):
    page.number_input(key="keep_repeats").set_value(page_session.SLOW_REPEATS)
    page.button(key="run").click()
    page.run()


def time_anew(page):
    settle(page.number_input(key="keep_repeats").set_value(5).run())
    press(page, "run")
    assert not page.error
    assert len(page.dataframe[0].value) == 2


def test_long_work_survives_a_look_elsewhere_a_cancel_and_the_death_of_its_engine(page):
    open_tab(page, "Compile & time")
    begin_timing(page)
    assert page.button(key="cancel")
    page.session_state["keep_tab"] = "Graph"
    page.run()
    assert "<b>7</b> nodes" in words(page)  # what is known is shown meanwhile
    page.button(key="cancel").click()
    page.run()
    put(page, keep_tab="Compile & time")
    assert "ancelled" in page.info[0].value
    time_anew(page)
    begin_timing(page)
    os.kill(page.session_state["cache_relay"].client.pid, signal.SIGKILL)
    settle(page.run())
    assert "engine" in page.error[0].value
    page.session_state["history"].clear()
    time_anew(page)


def test_code_has_the_snippet_and_the_commands_of_this_screen(page):
    training(page)
    pipeline = default_pipeline("relay", True).switched(11, False)
    page.session_state["pipeline_relay_training"] = str(pipeline)
    open_tab(page, "In your code")
    snippet, script, commands = (c.value for c in page.code)
    assert 'build("bert_layer", batch=1, tokens=14, training=True)' in snippet
    assert "add_tvm_dispatch(module, inputs)" in snippet
    compile(snippet, "snippet", "exec")
    compile(script, "script", "exec")
    assert f'\n# run.do("{pipeline.steps[11].name}")' in script
    lines = commands.splitlines()
    names = "graph step captures check time compare"
    assert " ".join(line.split()[1] for line in lines) == names
    assert "--engine" not in lines[-1] and str(pipeline) in lines[1]


def test_a_submodule_is_opened_alone_from_the_table_and_the_whole_comes_back(page):
    assert "on its inputs there" not in words(page)
    press(page, "modules")
    shown = page.dataframe[-1].value
    assert list(shown["module"]) == ["the whole model", "layers.0", "layers.1"]
    assert list(shown["class"]) == ["Net", "Linear", "ReLU"]
    put(page, keep_module="layers.0")
    assert page.query_params["module"] == "layers.0"
    gives = "What the whole gives it: layers.0, call"
    says(page, "Only <code>layers.0</code> of BERT layer", f"{gives} 1")
    assert page.number_input(key="keep_call").label == "Call of 2"
    settle(page.number_input(key="keep_call").set_value(2).run())
    says(page, f"{gives} 2")
    open_tab(page, "In your code")
    snippet, _, commands = (c.value for c in page.code)
    assert 'part = module.get_submodule("layers.0")' in snippet
    compile(snippet, "snippet", "exec")
    assert all("--module layers.0 --call 2" in line for line in commands.splitlines())
    press(page, "whole")
    assert "on its inputs there" not in words(page) and "module" not in page.query_params
    put(page, keep_module="layers.0")
    settle(page.sidebar.selectbox(key="keep_model").set_value("mlp").run())
    assert page.session_state["keep_module"] == ""  # another model has other modules


def test_whose_gradient_is_chosen_in_relax_and_compared_with_the_other(page):
    page.sidebar.segmented_control(key="ir").set_value("relay")
    training(page)
    assert not [c for c in page.segmented_control if c.key == "keep_gradient"]  # Relay has one
    settle(page.sidebar.segmented_control(key="ir").set_value("relax").run())
    settle(page.sidebar.segmented_control(key="keep_gradient").set_value("pytorch").run())
    open_tab(page, "In your code")
    lines = page.code[-1].value.splitlines()
    assert all("--gradient pytorch" in line for line in lines[:4])
    open_tab(page, "Gradient & cut")
    assert not page.error
    open_tab(page, "Side by side")
    settle(page.segmented_control(key="keep_against").set_value("gradient").run())
    a, b = (str(default_pipeline("relax", True, g)) for g in ("pytorch", "tvm"))
    sides = [c.value for c in page.caption if c.value.startswith(("A: ", "B: "))]
    assert plain_text(a) in sides[0] and plain_text(b) in sides[1]
    page.segmented_control(key="ir").set_value("relay")
    settle(page.run())
    assert page.session_state["keep_against"] == "ir"


class Job:
    done, progress, outcome = False, (0.0, ""), None

    def finish(self, outcome):
        self.done, self.outcome = True, outcome

    def result(self, timeout=None):
        return self.outcome


@pytest.fixture
def cache():
    jobs = []
    submit = lambda *asked: jobs.append(Job()) or jobs[-1]  # noqa: E731
    return RequestCache(Mock(jobs=jobs, submit=submit))


def waits(cache, *asked):
    with pytest.raises(Waiting):
        cache.ask(*asked, patience=0)


def test_a_request_cache_asks_once_and_starts_only_what_is_still_wanted(cache):
    waits(cache, "load", 1)
    waits(cache, "load", 2)
    waits(cache, "load", 3)
    assert len(cache.client.jobs) == 1
    cache.client.jobs[0].finish("one")
    waits(cache, "load", 3)
    assert cache.running.request == Request("load", (3,))
    assert [cache.ask("load", 1, patience=0) for _ in range(2)] == ["one", "one"]
    assert len(cache.client.jobs) == 2


def test_a_request_cache_keeps_so_many_answers_and_no_more(cache):
    for number in range(KEPT + 1):
        waits(cache, "load", number)
        cache.client.jobs[-1].finish(number)
        assert cache.ask("load", number, patience=0) == number
    assert cache.peek("load", 1) == 1
    assert cache.peek("load", 0) is None


def test_rows_tell_what_each_step_did():
    pipeline = Pipeline.parse("cse|-fold|fuse")
    failed = EngineError("pass", "It failed.", "fuse", "Switch it off.")
    idle = StepRecord("fold", False, 0, 0, 0, 10, 0.0)
    wrong = replace(idle, pass_name="fuse", enabled=True, error=failed)
    records = StepRecord("cse", True, 1, 2, 3, 10, 0.0004), idle, wrong
    first, cse, fold, fuse = step_rows("relay", pipeline, records, 11)
    assert (first.nodes, first.fixed) == (11, True)
    assert (cse.added, cse.removed, cse.changed, cse.nodes) == (2, 3, 1, 10)
    assert (cse.time, cse.idle, fold.time, fold.enabled) == ("0.4 ms", False, "", False)
    assert fuse.looking and fuse.failure == "It failed. Switch it off."
