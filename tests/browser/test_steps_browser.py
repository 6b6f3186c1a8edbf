"""The list of steps in Chromium: chosen, moved, switched, taken out, told something."""

import pytest

from app_in_browser import PAGE, ask, choose_row, click_named, settle, viewer_page, wait
from relascope.passes.catalogue import default_pipeline, info

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(streamlit_page):
    def open_():
        page = streamlit_page(PAGE)
        page.get_by_role("tab", name="Passes").click()
        page.locator(".row").nth(3).wait_for()
        settle(page)
        return page

    return open_


def listed(page):
    """(title, marks) of each row of the list but the import; marks are chosen, off, waiting."""
    return page.locator(".row").evaluate_all(
        "rows => rows.slice(1).map(r => [r.querySelector('.title').textContent,"
        " ['selected', 'off', 'waiting'].filter(c => r.classList.contains(c)).join(' ')])"
    )


def titles(page):
    return [title for title, _ in listed(page)]


def expected():
    return [info("relay", s).title for s in default_pipeline("relay", False)]


def press(page, *keys):
    page.locator(".list").focus()
    for key in keys:
        page.keyboard.press(key)
        settle(page)


def test_passes_are_edited_told_something_and_found_wrong_and_their_lists_are_taken(opened):
    page = opened()
    first, second, third, *rest = expected()
    press(page, "Home", "ArrowDown")
    assert listed(page)[0] == [first, "selected"]
    press(page, "Alt+ArrowDown")
    assert listed(page)[:3] == [[second, ""], [first, "selected"], [third, ""]]
    press(page, " ")
    assert listed(page)[1] == [first, "selected off"]
    press(page, "Delete")
    assert titles(page) == [second, third, *rest]
    assert listed(page)[0] == [second, "selected"]
    press(page, "Alt+ArrowUp")  # it is the first already
    assert titles(page) == [second, third, *rest]
    press(page, "Home", "ArrowDown")
    page.get_by_role("combobox", name="Add a pass").click()
    page.keyboard.type("convert_layout")
    seen_at_once = page.locator(".add").evaluate(
        "field => { field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' }));"
        " return field.getRootNode().querySelector('.row.selected').checkVisibility(); }"
    )
    assert seen_at_once
    settle(page)
    assert listed(page)[1] == [info("relay", "convert_layout").title, "selected"]
    page.get_by_role("combobox", name="data").click()
    click_named(page, "NCHW", "option", exact=True)
    assert page.locator(".row.selected .parameters").inner_text() == "data=NCHW"
    page.get_by_role("combobox", name="data").click()
    click_named(page, "NHWC", "option", exact=True)
    assert page.locator(".row.selected .parameters").count() == 0  # the default stands in no text
    # Nodes take the colour of their error.
    press(page, "End")
    click_named(page, "Errors", "radio", exact=True)
    shown = "d.box.style[v.index.get(a)]"
    wait(page, 0, f"{shown} === 'heat4'", "r")
    assert ask(page, 0, shown, "d0") == "heat1"
    assert ask(page, 0, shown, "x") == "heat0"
    legend = ask(page, 0, "v.legend.textContent")
    assert "not compared: no counterpart" in legend and "beyond, or no number" in legend
    x, y = ask(page, 0, _PLACE, "r")
    box = page.locator(".rs canvas.main").first.bounding_box()
    page.mouse.move(box["x"] + x, box["y"] + y)
    wait(page, 0, "v.tip.textContent.includes('error 2.5e-01')")
    assert "compared with aten::relu in layers.1" in ask(page, 0, "v.tip.textContent")
    page.get_by_text("It is wrong: one node is over the limit").wait_for()
    page.get_by_role("button", name="Try TVM's pipelines").click()
    page.get_by_text("Every pipeline matches.").wait_for()
    choose_row(page, 1)
    settle(page)
    assert listed(page) == [["FoldConstant", ""], ["FuseOps", "selected"]]
    # A finding is shown in the graph, and its pass added.
    page.get_by_text("Pipeline as text").click()
    field = page.get_by_role("textbox", name="Paste a pipeline")
    field.fill("cse")
    field.press("Enter")  # a button may move, while the box opens, between mouse down and up
    click_named(page, "Compile & time", "tab")
    page.get_by_role("button", name="Look for it").click()
    page.get_by_text("Choose a row to see it in the graph.").wait_for()
    choose_row(page, 0)
    wait(page, 0, "v.selected === 't0'")
    wait(page, 0, "d.node.style[d.node.id.indexOf('t0')] === 'hazard'")
    click_named(page, "Add bind|fold")
    page.get_by_role("button", name="Look for it").click()
    page.get_by_text("linters finds anything").wait_for()


@pytest.mark.exhaustive
def test_a_row_is_dragged_to_its_place(opened):
    page = opened()
    first, second, third, *rest = expected()
    target = page.locator(".row[data-row='3']")
    height = target.bounding_box()["height"]
    start = page.locator(".row[data-row='1']")
    start.drag_to(target, target_position={"x": 90, "y": height - 4})
    settle(page)
    assert titles(page) == [second, third, first, *rest]
    assert listed(page)[2][1] == "selected"
    target.drag_to(page.locator(".row[data-row='0']"), target_position={"x": 90, "y": 5})
    settle(page)
    assert titles(page) == [first, second, third, *rest]  # nothing stands before the import


@pytest.mark.exhaustive
def test_what_stands_behind_the_chosen_step_can_wait(opened):
    page = opened()
    press(page, "Home", "ArrowDown", "ArrowDown")
    page.get_by_text("Run only up to the chosen step").click()
    settle(page)
    assert [marks for _, marks in listed(page)][:4] == ["", "selected", "waiting", "waiting"]
    press(page, "ArrowDown")
    assert [marks for _, marks in listed(page)][:4] == ["", "", "selected", "waiting"]


_PLACE = (
    "(() => { const i = v.index.get(a), b = d.box;"
    " return [(b.x[i] + b.w[i] / 2) * v.zoom + v.x, (b.y[i] + b.h[i] / 2) * v.zoom + v.y]; })()"
)


@pytest.mark.exhaustive
def test_a_click_on_a_dot_of_the_roofline_finds_the_nodes_of_its_kernel(streamlit_page):
    page = streamlit_page(PAGE)
    page.get_by_role("tab", name="Compile & time").click()
    click_named(page, "Time each kernel")
    wait(page, 0, "d.node.id.includes('d0')")
    page.locator("[data-testid=stVegaLiteChart] [aria-label*='kernel: dense']").click()
    wait(page, 0, "v.selected === 'd0'")


def test_a_click_on_a_tensor_of_a_plan_chooses_the_node_that_writes_it(streamlit_page):
    page = viewer_page(streamlit_page, "plan=1")
    page.get_by_text("Storage 1 holds two tensors at step 2").wait_for()
    page.get_by_text("selected:").wait_for()
    chart = page.locator("[data-testid=stVegaLiteChart]")
    for writer, node in (("shift", "q"), ("difference", "r")):
        chart.locator(f"[aria-label*='written by: {writer}']").last.click()
        page.get_by_text(f"selected: {node}").wait_for()
