"""The cut in Chromium: a tensor is clicked, forced by hand, and the graph takes other colours."""

import pytest

from app_in_browser import PAGE, ask, choose_row, click, settle, wait

pytestmark = pytest.mark.browser

_STYLE = "d.node.style[d.node.id.indexOf(a)]"


@pytest.fixture
def page(streamlit_page):
    page = streamlit_page(PAGE)
    page.get_by_role("tab", name="Gradient & cut").click()
    page.get_by_role("button", name="Switch to training").click()
    wait(page, 0, "d.node.id.includes('gd')")
    settle(page)
    return page


def style(page, node_id):
    return ask(page, 0, _STYLE, node_id)


def test_a_tensor_is_found_clicked_forced_and_let_go(page):
    choose_row(page, 0)
    wait(page, 0, "v.selected === 'd0'")
    page.locator(".told").get_by_text("nn.dense would be computed again").wait_for()
    assert (style(page, "d0"), style(page, "r")) == ("captured", "captured")
    click(page, 0, "r")
    page.get_by_role("button", name="Compute it again", exact=True).click()
    page.get_by_role("button", name="nn.relu: computed again ✕").wait_for()
    settle(page)
    page.get_by_text("Forced by hand to be computed again.").wait_for()
    assert ask(page, 0, "d.node.role[d.node.id.indexOf('r')]") == "forward"
    click(page, 0, "d0")
    wait(page, 0, f"{_STYLE} === 'need'", "r")  # it is made of the one that is chosen now
    page.get_by_role("button", name="nn.relu: computed again ✕").click()
    settle(page)
    assert style(page, "r") == "captured"


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [1280, 800, 390])
def test_the_legend_of_the_chart_is_not_cut(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    legend = page.locator(".rs-legend")
    legend.scroll_into_view_if_needed()
    assert legend.evaluate(
        "e => [...e.children].every(c => c.scrollWidth <= c.clientWidth + 1"
        " && c.getBoundingClientRect().right <= e.getBoundingClientRect().right + 1)"
    )
