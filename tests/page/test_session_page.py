"""The page and its address, without a browser."""

from streamlit.testing.v1 import AppTest

from page import INFERENCE, LONG, open_tab, settle, words
from place import PAGES


def opened(**query):
    """The page as one opens it by an address."""
    page = AppTest.from_file(PAGES / "whole_page.py", default_timeout=LONG)
    page.query_params.update(query)
    return settle(page.run())


def test_an_address_brings_the_screen_back(page):
    page.sidebar.segmented_control(key="keep_mode").set_value("Training")
    page.session_state["pipeline_relay_training"] = "cse|gradient"
    page.session_state["step_tvm"] = 0
    page.sidebar.number_input(key="keep_batch_bert_layer").set_value(2)
    open_tab(page, "Passes")
    said = dict(page.query_params)
    again = opened(**said)
    assert dict(again.query_params) == {
        "mode": "training",
        "pipeline": "cse|gradient",
        "step": "0",
        "batch": "2",
        "tab": "Passes",
    }
    assert again.session_state["step_tvm"] == 0
    assert again.sidebar.number_input(key="keep_batch_bert_layer").value == 2
    assert "Step 1 of 2" in words(again)


def test_a_bad_address_is_said_in_a_sentence(page):
    page = opened(model="nothing", step="x", tab="Passes", batch="7", node="no_such")
    assert "step=x" in page.warning[0].value.replace("\\", "")
    assert f"Step {len(INFERENCE)} of {len(INFERENCE)}" in words(page)


def test_forced_tensors_that_are_gone_can_be_taken_back(page):
    page = opened(mode="training", tab="Gradient & cut", save="no_such_node")
    assert not page.exception
    page.button(key="undo_no_such_node").click()
    settle(page.run())
    assert "save" not in page.query_params
