"""The section "Tune the kernels": its table, a run as it goes, Cancel, and what is left then."""

import os
import time

import pytest

import fake_tuning
from page import LONG, open_tab, press, says, settle, table_with, whole_page, words
from relascope.engine.protocol import records
from relascope.engine.protocol.tuning import RECORDS, Trial
from relascope.viz.charts.charts import best_so_far


@pytest.fixture
def tab(no_records, page):
    return open_tab(page, "Compile & time")


def listed(tab):
    tab.button(key="list_tasks").click()
    return settle(tab.run())


def tune(tab, trials):
    tab.number_input(key="keep_trials").set_value(trials)
    tab.run()
    tab.button(key="tune").click()
    return tab.run()


def table(tab):
    return table_with(tab, "built with")


def place():
    return records.folder("relay", "0.0.test", "llvm", 0)


def test_a_run_to_its_end_leaves_records_that_are_there_after_a_reload(tab):
    assert not tab.dataframe
    rows = table(listed(tab))
    assert list(rows["kernel"]) == ["dense", "fused_relu_dense"]
    assert list(rows["share"]) == pytest.approx([100 * 8 / 9, 100 / 9])
    assert list(rows["without"]) == [0.8, 0.1] and rows["best"].isna().all()
    assert "All 2 kernels, 100% of the kernels' time: 64 trials" in words(tab)
    settle(tune(tab, 6))
    rows = table(tab)
    assert list(rows["trials"]) == [6, 6]
    assert list(rows["built with"]) == ["its record", "its record"]
    assert rows["gain"][0] == pytest.approx(0.8 / rows["best"][0])
    says(tab, "<b>12</b> trials", "<b>2 of 2</b> kernels have a record that is the fastest")
    assert tab.get("vega_lite_chart")
    press(tab, "use_records")
    assert tab.session_state["keep_target"] == f"llvm {RECORDS}"
    assert not [b for b in tab.button if b.key == "use_records"]
    again = settle(whole_page().run())
    open_tab(again, "Compile & time")
    assert "The records of this target hold 12 measurements of 2 kernels" in words(again)
    assert list(table(listed(again))["trials"]) == [6, 6]
    assert "The latest run: each kernel's best so far." in words(again)


def test_a_run_goes_on_while_another_tab_is_looked_at_and_cancel_keeps_what_was_found(tab):
    tune(listed(tab), fake_tuning.SLOW_TRIALS)
    until = time.monotonic() + LONG
    tab.session_state["keep_tab"] = "Graph"
    tab.run()
    before = len(records.read(place()).trials)
    while len(records.read(place()).trials) <= before:
        assert time.monotonic() < until
        time.sleep(0.1)
    tab.session_state["keep_tab"] = "Compile & time"
    while len(records.read(place()).trials) < 5:
        assert time.monotonic() < until
        tab.run()
    says(tab.run(), f"of {2 * fake_tuning.SLOW_TRIALS}</b> trials", "left")
    assert tab.get("vega_lite_chart")
    assert not [b for b in tab.button if b.key == "tune"]
    press(tab, "cancel_tuning")
    kept = 0
    while kept < len(records.read(place()).trials):  # one may be written while it is being stopped
        kept = len(records.read(place()).trials)
        time.sleep(0.5)
        tab.run()
    assert kept >= 5
    assert f"Tuning was stopped after {kept} trials; the results so far are kept." in words(tab)
    assert list(table(tab)["trials"]) == [kept, 0]
    settle(tune(tab, 2))
    while sorted(table(tab)["trials"]) != [2, kept + 2]:  # a run ends after its last trial is there
        assert time.monotonic() < until
        settle(tab.run())


def test_an_engine_that_is_killed_while_it_tunes_is_named_and_its_records_stay(tab):
    tune(listed(tab), fake_tuning.SLOW_TRIALS)
    until = time.monotonic() + LONG
    while not records.read(place()).trials:
        assert time.monotonic() < until
        tab.run()
    cache = next(d for d in tab.session_state["progress_shown"])
    os.kill(cache.client.pid, 9)
    settle(tab.run())
    says(tab, "the results so far are kept")
    assert any("signal" in e.value or "SIGKILL" in e.value for e in tab.error)
    assert table(tab)["trials"].sum() == len(records.read(place()).trials)


def test_the_curve_falls_and_goes_on_over_failures():
    times = [None, 4.0, None, 2.0]
    best = [None, 4.0, 4.0, 2.0]
    pairs = enumerate(zip(times, best, strict=True), 1)
    trials = [Trial("a", "r", k, ms, least, 1.0, str(k)) for k, (ms, least) in pairs]
    chart = best_so_far(trials, {"a": "dense"})
    rows = next(iter(chart.to_dict()["datasets"].values()))
    assert [(r["trial"], r["best"]) for r in rows] == [(2, 4.0), (3, 4.0), (4, 2.0)]
    assert best_so_far(trials[:1], {}) is None
