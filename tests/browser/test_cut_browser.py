"""The cut in Chromium, by hand and in the show: along the frontier, with reasons, and out again."""

import pytest

from app_in_browser import PAGE, ask, choose_row, click, click_named, settle, wait
from relascope.viz.rows.formats import size

pytestmark = pytest.mark.browser

_STYLE = "d.node.style[d.node.id.indexOf(a)]"
_ROLES = "Object.fromEntries(d.node.id.map((id, n) => [id, d.node.style[n]]))"


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


def shown(streamlit_page, **more):
    page = streamlit_page(PAGE, query="show=1", **more)
    page.locator(".rs.showing").wait_for()
    return page


def show(page, code):
    return ask(page, 0, f"(({{show}}) => {code})(v)")


def test_a_tensor_is_forced_and_let_go_and_the_show_goes_along_the_frontier(page):
    choose_row(page, 0)
    wait(page, 0, "v.selected === 'd0'")
    page.locator(".told").get_by_text("nn.dense would be computed again").wait_for()
    assert (style(page, "d0"), style(page, "r")) == ("captured", "captured")
    settle(page)
    click(page, 0, "r")
    page.get_by_role("button", name="Compute it again", exact=True).click()
    page.get_by_role("button", name="nn.relu: computed again ✕").wait_for()
    settle(page)
    page.get_by_text("Forced by hand to be recomputed.").wait_for()
    assert ask(page, 0, "d.node.role[d.node.id.indexOf('r')]") == "forward"
    click(page, 0, "d0")
    wait(page, 0, f"{_STYLE} === 'need'", "r")  # it is made of the one that is chosen now
    click_named(page, "nn.relu: computed again ✕")
    assert style(page, "r") == "captured"
    # The show goes along the frontier without the server.
    ask(page, 0, "v.select(null)")
    settle(page)
    page.locator("[data-act=show]").click()
    page.locator(".rs.showing").wait_for()
    settle(page)
    asked = []
    page.on("websocket", lambda _: asked.append("socket"))
    page.evaluate(
        "() => { window.sent = 0; const send = WebSocket.prototype.send;"
        " WebSocket.prototype.send = function (...a) {"
        " window.sent++; return send.apply(this, a); }; }"
    )
    bytes_ = {}
    for key, kept in (("Home", set()), ("ArrowRight", None), ("End", {"d0", "r"})):
        page.keyboard.press(key)
        at = show(page, "show.at")
        bytes_[at] = show(page, "show.cut.bytes")
        styles = ask(page, 0, _ROLES)
        assert kept is None or {i for i, style in styles.items() if style == "captured"} == kept
        again = {i for i, style in styles.items() if style == "again"}
        assert again == set(show(page, "show.cut.again"))
        assert page.locator(".show-figures b").first.inner_text() == size(bytes_[at])
    assert list(bytes_.values()) == sorted(bytes_.values()) and len(bytes_) >= 2
    assert page.evaluate("window.sent") == 0 and not asked
    page.keyboard.press("ArrowDown")
    card = page.locator(".show-card")
    assert card.locator("h3").inner_text().startswith("nn.dense")
    assert "nn.dense would be computed again" in card.inner_text()
    assert "Instead:" in card.inner_text() and "chosen" in card.inner_text()
    assert show(page, "v.selected") == "d0"
    assert page.evaluate("window.sent") == 0
    # The history of the browser's tab brings the show back, and takes it away.
    page.keyboard.press("Escape")  # of what is selected, and of the show
    page.keyboard.press("Escape")
    wait(page, 0, "!v.show.active")
    settle(page)
    click_named(page, "Graph", "tab")
    while "show=1" not in page.url:
        page.go_back()
        settle(page)
    page.locator(".rs.showing").wait_for()
    page.go_forward()
    page.wait_for_url(lambda url: "show=" not in url)
    wait(page, 0, "!v.show.active")


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


@pytest.mark.exhaustive
def test_a_cut_is_taken_from_the_show_and_the_page_has_it(streamlit_page):
    page = shown(streamlit_page)
    page.keyboard.press("Home")
    page.get_by_role("button", name="Choose this cut").click()
    wait(page, 0, "!v.show.active")
    settle(page)
    assert page.get_by_text("Along the frontier: bytes kept").is_visible()
    assert "show=" not in page.url and "frontier=0" in page.url
    assert ask(page, 0, "d.node.style[d.node.id.indexOf('d0')]") == "again"
    page.locator("[data-act=show]").click()
    page.locator(".rs.showing").wait_for()
    settle(page)
    assert "show=1" in page.url
    page.keyboard.press("Shift+F")
    page.wait_for_function("document.fullscreenElement !== null")
    page.keyboard.press("Shift+F")
    page.wait_for_function("document.fullscreenElement === null")
    assert page.locator(".rs.showing").is_visible() and show(page, "show.active")
    page.keyboard.press("Escape")
    wait(page, 0, "!v.show.active")
    settle(page)
    assert "show=" not in page.url


@pytest.mark.exhaustive
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800, 390])
def test_the_show_owns_the_window_at_every_width(streamlit_page, width, dark):
    page = shown(streamlit_page, width=width, dark=dark)
    page.keyboard.press("ArrowDown")
    box = page.locator(".rs.showing").bounding_box()
    assert (box["x"], box["y"], box["width"]) == (0, 0, width)
    inside = (
        "() => [...document.querySelectorAll('*')]"
        ".map(e => e.shadowRoot?.querySelector('.showing'))"
        ".find(Boolean).querySelectorAll('.show-head button, .show-card p, .show-card h3,"
        " .show-figures b, .show-line input, .show-ends')"
    )
    cut_off = page.evaluate(
        f"() => [...({inside})()].filter(e => e.getClientRects().length).filter(e => {{"
        " const r = e.getBoundingClientRect();"
        " return r.left < 0 || r.right > innerWidth + 1 || e.scrollWidth > e.clientWidth + 1; })"
        ".map(e => e.outerHTML)"
    )
    assert cut_off == []
    stage = page.locator(".showing .stage").bounding_box()
    assert stage["height"] * stage["width"] > 0.35 * width * page.viewport_size["height"]
    buttons = page.locator(".showing .show-head button:visible")
    for _ in range(buttons.count() + 12):  # the keyboard stays in the show
        page.keyboard.press("Tab")
        there = "document.activeElement.shadowRoot?.querySelector('.showing') !== null"
        assert page.evaluate(there)
