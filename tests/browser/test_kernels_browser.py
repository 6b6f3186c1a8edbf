"""The roofline in Chromium: a click on a dot finds the node."""

import io

import numpy as np
import pytest
from PIL import Image

from app_in_browser import PAGE, click_named, wait
from relascope.viz.drawing import palette

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive]


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


def test_a_click_on_a_dot_finds_the_nodes_of_its_kernel(streamlit_page):
    page = streamlit_page(PAGE)
    page.get_by_role("tab", name="Compile & time").click()
    click_named(page, "Time each kernel")
    wait(page, 0, "d.node.id.includes('d0')")
    chart = page.locator("[data-testid=stVegaLiteChart]").first
    chart.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    x, y = dots(chart)[0]  # the product is the slower one in FLOP/s
    chart.click(position={"x": x, "y": y})
    wait(page, 0, "v.selected === 'd0'")
