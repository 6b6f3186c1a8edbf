"""Relay and Relax side by side in Chromium: what is clicked in one is shown in the other."""

import pytest

from app_in_browser import PAGE, ask, click, settle, wait

pytestmark = pytest.mark.browser


def open_both(page):
    page.get_by_role("tab", name="Side by side").click()
    wait(page, 1, "d.node.id.includes('m1')")
    page.get_by_text("What differs between A and B").wait_for()
    settle(page)


def aligned(page, side):
    return ask(page, side, "d.node.id.filter((_, i) => d.node.style[i] === 'aligned')")


def place(page, side):
    return ask(page, side, "[v.x, v.y, v.zoom]")


def test_a_click_on_one_side_shows_the_counterpart_on_the_other(streamlit_page):
    page = streamlit_page(PAGE, width=1280, height=1000)
    open_both(page)
    left, right = (ask(page, side, "v.root.getBoundingClientRect().toJSON()") for side in (0, 1))
    assert abs(left["y"] - right["y"]) < 2
    assert left["x"] + left["width"] < right["x"]

    # A node.
    ask(page, 0, "v.center(v.index.get('d1'))")
    before = place(page, 0)
    click(page, 0, "d1")
    wait(page, 1, "v.selected === 'm1'")
    settle(page)
    assert aligned(page, 1) == ["p1", "m1"]
    assert aligned(page, 0) == ["d1"]
    assert ask(page, 0, "v.selected") == "d1"  # the echo is no choice
    page.get_by_text("same PyTorch operator", exact=True).wait_for()
    assert place(page, 0)[2] == before[2]

    # The other way; the view that was clicked stays where it is.
    ask(page, 1, "v.center(v.index.get('a'))")
    before = place(page, 1)
    click(page, 1, "a")
    wait(page, 0, "v.selected === 'r'")
    settle(page)
    assert aligned(page, 0) == ["r"]
    assert aligned(page, 1) == ["a"]
    assert place(page, 1) == pytest.approx(before)

    # A module.
    ask(page, 0, "v.select('group:layers.0')")
    wait(page, 1, "v.selected === 'group:layers.0'")
    page.get_by_text("same module only", exact=True).wait_for()

    # A narrow page has one above the other.
    page.set_viewport_size({"width": 1000, "height": 1000})
    settle(page)
    left, right = (ask(page, side, "v.root.getBoundingClientRect().toJSON()") for side in (0, 1))
    assert left["y"] + left["height"] < right["y"]
    assert abs(left["x"] - right["x"]) < 2
