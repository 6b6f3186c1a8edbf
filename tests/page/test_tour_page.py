"""The tour: ten screens, each what its card says, and back to what there was before."""

from page import INFERENCE, open_tab, press, settle, step, words
from relascope.viz.panels.tour import STOPS


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
