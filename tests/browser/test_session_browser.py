"""The screen comes back: after a reload, and after the app's end."""

import re
import signal

import pytest

from app_in_browser import MOMENT, PAGE, ask, settle, wait
from browser import OPEN_SIDEBAR, Server

pytestmark = pytest.mark.browser


def opened(page):
    page.get_by_role("tab", name="Graph").wait_for()
    settle(page)


def choose(page):
    page.get_by_role("tab", name="Passes").click()
    settle(page)
    page.get_by_role("button", name="Previous").click()
    settle(page)
    page.get_by_role("button", name="Previous").click()
    settle(page)
    ask(page, 0, "v.focus('d1')")
    page.wait_for_function("() => location.search.includes('node=d1')")
    settle(page)


def screen(page):
    wait(page, 0, "v.selected === 'd1'")
    settle(page)
    assert not page.locator("[data-testid=stException]").count()
    return (
        page.get_by_text(re.compile(r"^Step \d+ of \d+$")).inner_text(),
        page.locator("[role=tab][aria-selected=true]").inner_text(),
        ask(page, 0, "v.selected"),
        page.evaluate("location.search"),
    )


def look_elsewhere(page):
    group = ask(page, 0, "Object.keys(d.groups).find(g => d.groups[g].open)")
    ask(page, 0, "v.setToggles({[a]: false})", group)
    wait(page, 0, "!d.groups[a].open", group)
    page.evaluate(MOMENT, 500)  # the page is told a moment later
    settle(page)
    ask(page, 0, "(v.zoomBy(0.7), v.x += 31, v.y -= 17, v.redraw())")
    wait(page, 0, "v.x === JSON.parse(sessionStorage.getItem('relascope step_view')).x")
    settle(page)
    return seen(page)


def seen(page):
    return ask(
        page, 0, "[v.zoom, v.x, v.y, ...Object.keys(d.groups).filter(g => d.groups[g].open)]"
    )


def test_a_reload_brings_the_screen_back(streamlit_page):
    page = streamlit_page(PAGE)
    opened(page)
    choose(page)
    looked_at = look_elsewhere(page)
    before = screen(page)
    page.reload()
    opened(page)
    assert screen(page) == before
    assert seen(page) == looked_at


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_app_ends_and_starts_again(chromium, tmp_path, end):
    own = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(OPEN_SIDEBAR)
    with Server(PAGE, own) as server:
        page = context.new_page()
        page.goto(server.url)
        opened(page)
        choose(page)
        looked_at = look_elsewhere(page)
        before = screen(page)
        server.process.send_signal(end)
        server.process.wait()
        with server:
            page.wait_for_function(
                "() => !document.querySelector('[data-testid=stConnectionStatus]')"
            )
            assert screen(page) == before
            assert seen(page) == looked_at
            context.close()
