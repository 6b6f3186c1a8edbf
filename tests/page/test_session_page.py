"""The page, its address and what it keeps, without a browser; and its tour through ten screens."""

import json
from dataclasses import replace

from engines import shared_fake
from page import INFERENCE, open_tab, press, settle, step, whole_page, words
from page_session import WRONG_SEED
from relascope.commands.main import main
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.panels.shell.sidebar import NAMED
from relascope.viz.panels.tour import STOPS
from relascope.viz.sessions import replay, store
from relascope.viz.sessions.state import Compile, ModelChoice, ScreenState, Session


def opened(**query):
    page = whole_page()
    page.query_params.update(query)
    return settle(page.run())


def test_an_address_brings_the_screen_back(page):
    page.sidebar.segmented_control(key="keep_mode").set_value("Training")
    page.session_state["pipeline_relay_training"] = "cse|gradient"
    page.session_state["step_tvm"] = 0
    page.sidebar.number_input(key="keep_batch_bert_layer").set_value(2)
    open_tab(page, "Passes")
    again = opened(**dict(page.query_params))
    kept = {"mode": "training", "pipeline": "cse|gradient", "step": "0", "batch": "2"}
    del again.query_params["session"]
    assert again.query_params == kept | {"tab": "Passes"}
    assert again.session_state["step_tvm"] == 0
    assert again.sidebar.number_input(key="keep_batch_bert_layer").value == 2
    assert step(again) == (1, 2)


def test_a_model_is_chosen_by_name_and_an_address_brings_it_back(page):
    settle(page.sidebar.selectbox(key="keep_model").set_value(NAMED).run())
    assert "hf:distilbert" in page.sidebar.selectbox(key="keep_name").options
    settle(page.sidebar.selectbox(key="keep_name").set_value("hf:bert").run())
    assert "Net, 1\u202f234 parameters by default." in [c.value for c in page.sidebar.caption]
    page.sidebar.text_input(key="keep_changes_hf:bert").set_value("num_hidden_layers=2")
    settle(page.run())
    said = dict(page.query_params)
    said.pop("session")
    assert said == {"model": "hf:bert?num_hidden_layers=2", "weights": "random"}
    again = opened(**said)
    assert again.sidebar.selectbox(key="keep_name").value == "hf:bert"
    assert again.sidebar.text_input(key="keep_changes_hf:bert").value == "num_hidden_layers=2"
    assert again.sidebar.checkbox(key="keep_random").value
    again.sidebar.text_input(key="keep_changes_hf:bert").set_value("/etc")
    assert "is not a list of settings" in words(settle(again.run()))


def test_a_bad_address_is_said_in_a_sentence(page):
    page = opened(model="nothing", step="x", tab="Passes", batch="7", node="no_such")
    assert "step=x" in page.warning[0].value.replace("\\", "")
    assert step(page) == (len(INFERENCE), len(INFERENCE))
    assert "step=x" in words(settle(page.run())).replace("\\", "")
    settle(page.sidebar.segmented_control(key="keep_mode").set_value("Training").run())
    assert "step=x" not in words(settle(page.run())).replace("\\", "")
    assert "Drop the file on the page" in words(opened(model="/tmp/x.pt2"))
    for model in ("python:/tmp/evil.py:model", "hf:/etc"):  # it names neither code nor folders
        assert "no model is called" in words(opened(model=model))


def timed(page):
    page.sidebar.segmented_control(key="keep_mode").set_value("Training")
    open_tab(page, "Passes")
    open_tab(page, "Gradient & cut")
    page = open_tab(page, "Compile & time")
    settle(page.number_input(key="keep_repeats").set_value(7).run())
    for button in ("run", "profile", "check_all"):
        press(page, button)
    open_tab(page, "Passes")
    press(page, "bisect_button")
    return open_tab(page, "Compile & time")


def test_what_was_found_is_kept_with_the_session_and_run_again_from_its_file(
    page, tmp_path, monkeypatch, capsys
):
    page = timed(page)
    (entry,) = store.entries()
    assert entry.about == "BERT layer, training, Relay"
    kept = store.get(entry.id)
    assert set(kept.results) >= {"steps", "graphs", "cut", "errors"}
    assert kept.engines["relay"]
    file = tmp_path / "session.zip"
    replay.write(file, kept, None)
    assert main(["replay", str(file), "--json"], shared_fake) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["same"], document["differences"]
    parts = ["accuracy", "bisection", "cut", "errors", "graphs", "profile", "steps"]
    assert document["compared"] == parts
    written = []
    monkeypatch.setattr(Sheet, "html", lambda sheet: written.append(sheet) or "")
    assert main(["replay", str(file), "-o", str(tmp_path / "session.html")], shared_fake) == 0
    (checks,) = (t["sections"] for t in written[0].tabs if t["key"] == "checks")
    errors, report, said, search, kernels = checks
    assert errors["rows"][0][0] == "output 0"
    assert {row[report["columns"].index("outcome")] for row in report["rows"]} == {"right"}
    assert said["text"].startswith("Nothing to find") and "pipeline" in search["columns"]
    assert kernels["rows"][1][:4] == ["dense", "forward", "0.800 ms", "80.0 %"]
    capsys.readouterr()
    replay.write(file, replace(kept, model=replace(kept.model, seed=WRONG_SEED)), None)
    assert main(["replay", str(file)], shared_fake) == 1
    assert "gradient of" in capsys.readouterr().out
    replay.write(file, replace(kept, results={"accuracy": {}}), None)
    main(["replay", str(file), "--json"], shared_fake)
    assert json.loads(capsys.readouterr().out)["results"]["accuracy"]["rows"], "on its own inputs"
    # Pages of a process are as another process happens to have them.
    grown = [{**step, "kept_bytes": step["kept_bytes"] + 4096} for step in kept.results["steps"]]
    replay.write(file, replace(kept, results={**kept.results, "steps": grown}), None)
    assert main(["replay", str(file)], shared_fake) == 0
    capsys.readouterr()
    again = opened(session=entry.id)
    assert again.session_state["keep_repeats"] == 7
    assert [t.title for t in again.session_state["history"].values()] == ["bert_layer, training"]
    assert again.get("arrow_vega_lite_chart") is not None
    assert store.get(entry.id).timings == kept.timings
    tables = [d.value for d in again.dataframe]
    kernels = next(t for t in tables if "kernel" in t)
    assert list(kernels["kernel"]) == ["fused_add", "dense", "fused_relu_dense"]
    assert 1 < kernels["share"].sum() <= 100
    stages = next(t for t in tables if "worst tensor" in t)
    assert set(stages["outcome"]) == {"right"}
    open_tab(again, "Passes")
    assert "Found before." in words(again) and "Nothing to find" in words(again)
    settle(again.sidebar.number_input(key="keep_seed").set_value(5).run())
    assert "Found before" not in words(again), "that is another screen"


def test_the_show_turns_to_training_and_forced_tensors_that_are_gone_can_be_taken_back(page):
    page = opened(tab="Gradient & cut", show="1", save="no_such_node")
    state = page.session_state
    assert (state["keep_mode"], state["show_asked"]) == ("Training", True)
    press(page, "undo_no_such_node")
    assert "save" not in page.query_params


def test_the_pipeline_of_another_mode_is_kept(page):
    page.session_state["pipeline_relay_training"] = "cse"
    settle(page.sidebar.number_input(key="keep_seed").set_value(4).run())
    (entry,) = store.entries()
    assert store.get(entry.id).pipelines == {"pipeline_relay_training": "cse"}
    assert opened(session=entry.id).session_state["pipeline_relay_training"] == "cse"


def test_a_session_of_a_bad_pill_is_shown(page):
    bad = Compile(variants=("library", "cuda"))
    session = Session(model=ModelChoice(batch=1, tokens=14), build=bad)
    store.put("one", replace(session, look=ScreenState("Compile & time")), "one")
    assert not opened(session="one").exception


def test_the_tour_goes_through_ten_screens_and_back_to_the_one_before(page):
    assert len(STOPS) == 10
    page.sidebar.selectbox(key="keep_model").set_value("mlp")
    open_tab(page, "Passes")
    press(page, "tour_begin")
    seen = []
    for number, stop in enumerate(STOPS, 1):
        assert f"**{number} of 10: {stop.title}.**" in words(page)
        assert page.query_params["tour"] == str(number)
        state = page.session_state
        wrong = [e.value for e in page.error if "over the limit in float32" not in e.value]
        assert not wrong  # the engine of this page is wrong in one node
        seen.append((state["keep_tab"], state["keep_mode"]))
        if stop.at:
            assert step(page)[0] == stop.session().look.step + 1
        if stop.query.get("strategy"):
            assert state["keep_strategy"] == stop.query["strategy"]
        for name, value in stop.choices.items():
            assert state[name] == value
        if number < 10:
            press(page, "tour_next")
    assert seen[0] == ("Graph", "Inference") and seen[-1] == ("Compile & time", "Training")
    press(page, "tour_back")
    assert "**9 of 10" in words(page)
    press(page, "tour_end")
    state = page.session_state
    assert (state["keep_model"], state["keep_tab"]) == ("mlp", "Passes")
    assert "tour" not in page.query_params and " of 10" not in words(page)


def test_the_show_begins_from_its_stop_and_stops_are_of_the_default_pipelines(page):
    number = next(n for n, stop in enumerate(STOPS, 1) if stop.show)
    page.query_params["tour"] = str(number)
    settle(page.run())
    press(page, "tour_show")
    assert page.query_params["show"] == "1" and page.session_state["show_asked"]
    assert f"**{number} of 10" in words(page)
    stop = next(s for s in STOPS if s.at == "fuse")
    assert stop.session().look.step == len(INFERENCE) - 1
