"""The roofline and the findings in Chromium: a click on a dot, or on a row, finds the node."""

import io

import numpy as np
import pytest
from PIL import Image

from app_in_browser import PAGE, choose_row, settle, wait
from relascope.viz.drawing import palette

pytestmark = pytest.mark.browser


@pytest.fixture
def page(streamlit_page):
    page = streamlit_page(PAGE)
    page.get_by_role("tab", name="Compile & time").click()
    return page


def dots(chart):
    """Where pixels have the colour of matrix products: x and y in the chart, the lowest first."""
    image = np.asarray(Image.open(io.BytesIO(chart.screenshot())).convert("RGB"), dtype=int)
    mixed = palette.between("matmul")
    colour = np.array([int(mixed[i : i + 2], 16) for i in (1, 3, 5)])
    near = np.abs(image - (0.85 * colour + 0.15 * 255)).sum(axis=2) < 30
    rows, columns = np.nonzero(near[: int(0.8 * len(near))])  # without the legend
    assert len(rows) > 20
    low, left = rows.argmax(), columns.argmin()
    return [(int(columns[low]), int(rows[low]) - 3), (int(columns[left]) + 3, int(rows[left]))]


@pytest.mark.exhaustive
def test_a_click_on_a_dot_finds_the_nodes_of_its_kernel(page):
    page.get_by_role("button", name="Time each kernel").click()
    settle(page)
    wait(page, 0, "d.node.id.includes('d0')")
    chart = page.locator("[data-testid=stVegaLiteChart]").first
    chart.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    x, y = dots(chart)[0]  # the product is the slower one in FLOP/s
    chart.click(position={"x": x, "y": y})
    wait(page, 0, "v.selected === 'd0'")


def test_a_finding_is_shown_in_the_graph_and_its_pass_added(page):
    page.get_by_role("tab", name="Passes").click()
    settle(page)
    page.get_by_text("Pipeline as text").click()
    field = page.get_by_role("textbox", name="Paste a pipeline")
    field.fill("cse")
    field.press("Enter")  # a button may move, while the box opens, between mouse down and up
    page.get_by_role("tab", name="Compile & time").click()
    settle(page)
    page.get_by_role("button", name="Look for it").click()
    page.get_by_text("Choose a row to see it in the graph.").wait_for()
    choose_row(page, 0)
    wait(page, 0, "v.selected === 't0'")
    wait(page, 0, "d.node.style[d.node.id.indexOf('t0')] === 'hazard'")
    page.get_by_role("button", name="Add bind|fold").click()
    settle(page)
    page.get_by_role("button", name="Look for it").click()
    page.get_by_text("linters finds anything").wait_for()
