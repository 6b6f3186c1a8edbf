"""The roofline in Chromium: a click on a dot finds the node."""

import pytest

from app_in_browser import PAGE, click_named, wait

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive]


def test_a_click_on_a_dot_finds_the_nodes_of_its_kernel(streamlit_page):
    page = streamlit_page(PAGE)
    page.get_by_role("tab", name="Compile & time").click()
    click_named(page, "Time each kernel")
    wait(page, 0, "d.node.id.includes('d0')")
    page.locator("[data-testid=stVegaLiteChart] [aria-label*='kernel: dense']").click()
    wait(page, 0, "v.selected === 'd0'")
