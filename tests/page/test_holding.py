"""Controls keep what is typed and chosen, whatever the browser says in between; engines end when
their tabs do, and rest while nobody asks them anything."""

from functools import partial
from unittest.mock import Mock, call, create_autospec

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.testing.v1 import AppTest

from relascope.engine.limits import of_page
from relascope.engine.places import PLACES
from relascope.viz.panels.shell import tab_engines


def controls():
    import streamlit as st

    from relascope.viz.panels.shell.holding import keeping_widget_values, put

    with keeping_widget_values():
        if st.checkbox("shown", True):
            st.number_input("Batch", 1, 1024, key="keep_batch")
        st.radio("Mode", ["Inference", "Training"], key="keep_mode")
        st.button("Train", on_click=put, args=("keep_mode", "Training"))


@pytest.fixture
def page():
    page = AppTest.from_function(controls).run()
    assert not page.exception
    return page


def test_a_value_outlives_its_control_and_is_not_sent_over_what_is_typed(page):
    page.number_input[0].set_value(7).run()
    assert not page.number_input[0].proto.set_value  # the browser would show it at once
    for shown in (False, False, True):
        page.checkbox[0].set_value(shown).run()
    assert page.number_input[0].value == 7
    assert page.number_input[0].proto.set_value  # the control is a new one in the browser
    page.run()
    assert not page.number_input[0].proto.set_value


def chosen():
    import streamlit as st

    from relascope.viz.panels.shell.holding import ask, keeping_widget_values

    for key in ("keep_model", "keep_way"):
        st.session_state.setdefault(key, "second")
    with keeping_widget_values():
        st.selectbox("Model", ["first", "second"], key="keep_model")
        ask(st.selectbox, "Way", ["first", "second"], key="keep_way")


def test_a_control_has_its_value_though_the_browser_never_got_what_was_drawn_first():
    page = AppTest.from_function(chosen).run()
    # What it says comes from before, and takes the place of the first run.
    for run, sent in ((partial(page._run, WidgetStates()), True), (page.run, False)):
        run()
        assert [box.value for box in page.selectbox] == ["second", "second"]
        assert [box.proto.set_value for box in page.selectbox] == [sent, False]
        # A value that is sent would overwrite what is chosen until it arrives.
        assert page.selectbox[1].proto.default == 1, "the browser may have forgotten it by now"


def test_what_a_click_sets_stands_until_the_browser_has_been_told(page):
    page.button[0].click().run()
    assert page.radio[0].value == "Training"
    page.radio[0].set_value("Inference").run()  # the browser had sent it before it was told
    assert page.radio[0].value == "Training"
    page.run()  # now it says the same
    page.radio[0].set_value("Inference").run()
    assert page.radio[0].value == "Inference"


def cut_short():
    """A page that runs again before its buttons are drawn, as one whose engine has answered."""
    import streamlit as st

    from relascope.viz.panels.shell.holding import keeping_widget_values, pressed, rerun

    with keeping_widget_values():
        if st.session_state.pop("answered", False):
            rerun()
        st.write("pressed" if pressed("Run", "run") else "waits")


@pytest.mark.parametrize("answered", [False, True])
def test_a_press_is_told_once_though_the_run_was_cut_short(answered):
    page = AppTest.from_function(cut_short).run()
    page.session_state["answered"] = answered
    page.button[0].click().run()
    assert [text.value for text in page.markdown] == ["pressed"]
    page.run()
    assert [text.value for text in page.markdown] == ["waits"]


def interrupted():
    """A page whose browser has sent more as soon as a callback begins, or it asks its engine."""
    from unittest.mock import Mock

    import streamlit as st
    from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx

    from relascope.viz.panels.shell import holding
    from relascope.viz.panels.shell.request_cache import RequestCache

    def send_more():
        get_script_run_ctx().script_requests.request_rerun(RerunData())

    def press():
        send_more()
        st.session_state["done"] = st.session_state.get("done", 0) + 1

    with holding.keeping_widget_values():
        st.button("Press", on_click=press)
        if st.button("Ask"):
            send_more()
            RequestCache(Mock(**{"submit.return_value.done": False})).ask("load", patience=1)


def test_a_callback_runs_to_its_end_and_a_wait_ends_when_the_browser_has_sent_more():
    page = AppTest.from_function(interrupted).run()
    page.button[0].click().run()
    assert page.session_state["done"] == 1
    page.button[1].click().run()
    assert not page.exception, "it went on waiting"


@pytest.fixture
def engines(monkeypatch):
    client = {"idle": 0.0, "limits": of_page()}
    make = partial(create_autospec, tab_engines.EngineClient, instance=True, **client)
    monkeypatch.setattr(tab_engines, "EngineClient", lambda ir: make())
    monkeypatch.setattr(tab_engines, "time", Mock(**{"monotonic.return_value": 1000.0}))
    monkeypatch.setattr(tab_engines, "_look_after", lambda engines: None)
    monkeypatch.setattr(tab_engines, "most_of_page", lambda: 3)
    monkeypatch.setattr(PLACES, "most", 0)
    here = {"a", "b"}
    monkeypatch.setattr(tab_engines, "_connected", here.__contains__)
    engines = tab_engines.Engines()
    engines.here, engines.now = here, tab_engines.time.monotonic
    return engines


def test_the_engine_of_a_closed_tab_ends_and_that_of_an_idle_one_rests(engines):
    first, second = engines.take("relax", None, "a"), engines.take("relax", None, "b")
    engines.here.discard("a")
    engines.look()
    assert not first.client.rest.called, "it may be a reload"
    engines.now.return_value += 30
    engines.look()
    assert first.client.rest.mock_calls == [call(busy=True)]
    assert not second.client.rest.called
    second.client.idle = 61.0
    engines.look()
    assert second.client.rest.mock_calls == [call()]
