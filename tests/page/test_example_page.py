"""What the chosen step's pass does to a small program, on the page, without a browser."""

from page import INFERENCE, open_tab, settle, words

STEPS = [s.name for s in INFERENCE]


def test_the_small_program_stands_before_and_after_the_pass_while_it_is_open(page):
    open_tab(page, "Passes")

    def chosen(name, opened=True):
        page.session_state["step_inference"] = STEPS.index(name)
        page.session_state["keep_example"] = opened  # what a click on the expander sets
        settle(page.run())
        return [c.value for c in page.code]

    assert {"transpose(w)", "w"} <= set(chosen("fold"))
    assert "fold on x: float32\\[2, 3\\]" in words(page)
    assert "It only says so." in words(page)
    assert "transpose(w)" not in chosen("fold", False), "nothing is asked while it is closed"
    chosen("cse")
    assert "has no example" in words(page)
