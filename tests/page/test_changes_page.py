"""The lists below a step's graph and the pass's example on the page, without a browser."""

from functools import partial

import pytest

from graphs import fused
from page import INFERENCE, open_tab, put, sent, settle, words
from page_session import forward_graph
from relascope.viz.component import views as component
from relascope.viz.drawing import palette
from relascope.viz.drawing.labels import title
from relascope.viz.panels.shell import table
from relascope.viz.panels.steps import changes
from relascope.viz.rows.step_list import StepChange

STEPS = [s.name for s in INFERENCE]
FOLD = STEPS.index("fold")


@pytest.fixture
def fold(page):
    open_tab(page, "Passes")
    page.session_state["step_inference"] = FOLD
    return settle(page.run())


def test_what_a_step_did_is_listed_filtered_counted_and_written(fold):
    table = fold.dataframe[0].value
    rows = dict(zip(table["node"], table["where it came from, or went"], strict=True))
    assert rows == {
        "transpose": "left out: its readers read layers.0.weight",
        "nn.dense": "reads layers.0.weight, not transpose",
    }
    styled = fold.dataframe[0].proto.arrow_data.styler
    for what, sign in (("removed", "− removed"), ("changed", "~ changed")):
        assert f"background-color: {palette.STYLES['light'][what].fill}" in styled.styles
        assert sign.encode() in styled.display_values
    settle(fold.text_input(key="change_filter").set_value("Layers.0.weight, not").run())
    assert list(fold.dataframe[0].value["node"]) == ["nn.dense"]
    put(fold, keep_change_view="Operators")
    first = fold.dataframe[0].value.iloc[0]
    assert (first["operator"], first["before"], first["after"]) == ("transpose", 1, 0)
    assert "<b>7 → 6</b> nodes" in words(fold) and "FLOPs, estimated" in words(fold)
    put(fold, keep_step_colours="Text")
    rows = [row for part in sent(fold, "step_text")["rows"] for row in part]
    assert [[4, [["  %3' = transpose;", True]]], None] in rows


def test_a_long_table_has_the_signs_alone():
    rows = [{"what": "added", "node": "add"}] * (table._COLOURED + 1)
    shown = table._signed(rows, "what")
    assert shown[-1] == {"what": "+ added", "node": "add"} and len(shown) == len(rows)


def test_what_was_removed_is_drawn_when_it_is_chosen(monkeypatch):
    here = StepChange.between(forward_graph(), forward_graph(transposed=False), "here")
    state = {}
    monkeypatch.setattr(changes.st, "session_state", state)
    picture = partial(changes.picture, here, "view")
    assert "t0" in picture().by_id
    assert picture() is picture(), "drawings are kept by their graph"
    state["keep_show_removed"] = False
    assert "t0" not in picture().by_id
    component.select("view", "t0")
    assert "t0" in picture().by_id


def test_nodes_are_coloured_by_their_error_and_a_step_that_changed_nothing_says_so(fold):
    put(fold, keep_step_colours="Errors")
    assert "It is wrong: one node is over the limit in float32, first nn.relu" in words(fold)
    table = fold.dataframe[0].value
    assert list(table["node"]) == ["nn.relu", "nn.dense"]
    assert table["max abs"][0] == 0.25
    assert "1 of the nodes that compute something" in words(fold)
    put(fold, keep_step_colours="Changes")
    assert "where it came from, or went" in fold.dataframe[0].value
    put(fold, step_inference=FOLD + 1)
    assert "It changed no node." in words(fold)


def test_fused_functions_and_what_goes_into_them_have_their_kernels_colour():
    (overlay,) = changes.kernels(fused())
    first, other = (fused().by_id[i] for i in ("f0", "f1"))
    assert overlay.values["f0"] == overlay.values["n3"] == title(first)  # n3 stands in f0 alone
    assert overlay.values["f1"] == title(other)
    assert "x" not in overlay.values
    assert changes.kernels(forward_graph()) == []


def test_the_small_program_stands_before_and_after_the_pass_while_it_is_open(page):
    open_tab(page, "Passes")

    def chosen(name, opened=True):
        page.session_state["step_inference"] = STEPS.index(name)
        page.session_state["keep_example"] = opened  # what a click on the expander sets
        settle(page.run())
        return [c.value for c in page.code]

    assert {"transpose(w)", "w"} <= set(chosen("fold"))
    assert "fold on x: float32\\[2, 3\\]" in words(page) and "It only says so." in words(page)
    assert "transpose(w)" not in chosen("fold", False), "nothing is asked while it is closed"
    chosen("cse")
    assert "has no example" in words(page)
