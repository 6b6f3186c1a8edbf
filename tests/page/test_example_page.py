"""What the chosen step's pass does to a small program, on the page, without a browser."""

from page import INFERENCE, open_tab, settle, words

STEPS = [s.name for s in INFERENCE]


def chosen(page, name):
    open_tab(page, "Passes")
    page.session_state["step_inference"] = STEPS.index(name)
    page.session_state["keep_example"] = True  # what a click on the expander sets
    return settle(page.run())


def shown(page):
    return [c.value for c in page.code]


def test_the_small_program_stands_before_and_after_the_pass(page):
    chosen(page, "fold")
    assert {"transpose(w)", "w"} <= set(shown(page))
    assert "fold on x: float32\\[2, 3\\]" in words(page)
    assert "It only says so." in words(page)


def test_a_pass_without_one_says_so(page):
    assert "has no example" in words(chosen(page, "cse"))


def test_nothing_is_asked_while_it_is_closed(page):
    chosen(page, "fold")
    page.session_state["keep_example"] = False
    settle(page.run())
    assert "transpose(w)" not in shown(page)
