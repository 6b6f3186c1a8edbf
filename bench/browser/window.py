"""How the viewer does in headless Chromium: its part of the window, idle, frames, search.

Run `python bench/browser/window.py` from the project's root. The machine's load counts: frames a
second are those that Chromium drew without a GPU. Returns 1 where a bar is not met.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "tests/support")]

from app_in_browser import SHARE, VIEWER, View, settle  # noqa: E402
from browser import Server, browsing  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TABS = ("Graph", "Passes", "Gradient & cut")
IDLE = 5.0  # seconds that are watched
_FRAMES = (
    "new Promise(done => { let frames = 0; const move = new Function('v', 'k', a);"
    " v.fit(); v.draw(); const began = performance.now();"
    " const next = () => { move(v, frames++); v.draw(); const past = performance.now() - began;"
    "  if (past < 3000) requestAnimationFrame(next); else done(frames / past * 1000); };"
    " requestAnimationFrame(next); })"
)
_MOVES = {
    "panning": "v.x += k % 60 < 30 ? 9 : -9;",
    "zooming": "v.zoomBy(k % 60 < 30 ? 1.04 : 1 / 1.04);",
    "pointing": "v.hover = v.solid[(7 * k) % v.solid.length];",
}
_DRAWING = (
    "(() => { const times = []; for (let k = 0; k < 15; k++) {"
    " const began = performance.now(); v.painter.kept = null; v.draw();"
    " v.ctx.getImageData(0, 0, 1, 1); times.push(performance.now() - began); }"
    " return times.sort((a, b) => a - b)[7]; })()"
)
_SEARCH = (
    "(() => { const began = performance.now(); v.finder.find(a, false);"
    " return performance.now() - began; })()"
)


def share(browser: Browser) -> dict[str, float]:
    """By tab, the part of a window of 1280×900 whose topmost thing is a picture of the graph."""
    with Server(ROOT / "app.py") as server:
        page = _page(browser, f"{server.url}/?mode=training")
        found = {}
        for tab in TABS:
            page.get_by_role("tab", name=tab).click()
            page.locator(".rs[data-ready]:visible").wait_for()
            settle(page)
            found[tab] = page.evaluate(SHARE)
        found["idle"] = idle(browser, page)
        page.close()
    return found


def idle(browser: Browser, page: Page) -> float:
    """Of one core, what all of Chromium takes while nobody does anything."""
    client = browser.new_browser_cdp_session()

    def spent() -> float:
        processes = client.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(float(p["cpuTime"]) for p in processes)

    page.wait_for_timeout(1000)
    before = spent()
    page.wait_for_timeout(1000 * IDLE)
    return (spent() - before) / IDLE


def drawn(browser: Browser, graph: str) -> dict[str, Any]:
    """Frames a second, and milliseconds to draw one, of a graph that is open and in view whole."""
    with Server(VIEWER, {"PYTHONPATH": str(ROOT / "tests/support")}) as server:
        page = _page(browser, f"{server.url}/?graph={graph}")
        view = View(page)
        view.ask("v.toggleAll(true)")
        page.wait_for_timeout(500)
        found = {"nodes": view.ask("v.solid.length")}
        found["frames"] = {what: view.ask(_FRAMES, move) for what, move in _MOVES.items()}
        found["frame_ms"] = view.ask(_DRAWING)
        page.close()
    return found


def _page(browser: Browser, url: str) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(300_000)
    page.goto(url)
    page.locator(".rs[data-ready]:visible").wait_for()
    settle(page)
    return page


def main() -> int:
    """Measure, print, and return 0 where the bars are met."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    missed = 0

    def said(what: str, value: float, unit: str, bar: float, least: bool = False) -> None:
        nonlocal missed
        met = value >= bar if least else value <= bar
        missed += not met
        print(f"{what}: {value:.3g} {unit} ({'at least' if least else 'at most'} {bar:g})")

    with browsing() as browser:
        found = share(browser)
        for tab in TABS:
            said(f"{tab}: picture", 100 * found[tab], "% of the window", 70, least=True)
        said("idle", 100 * found["idle"], "% of a core", 2)
        for graph, least in (("big", 60), ("huge", 30)):
            figures = drawn(browser, graph)
            name = f"{figures['nodes']:,} nodes in view"
            for what, frames in figures["frames"].items():
                said(f"{name}, {what}", frames, "frames a second", least - 1, least=True)
            print(f"{name}: {figures['frame_ms']:.3g} ms to draw anew")
        figures = searched(browser)
        for what, value in figures.items():
            said(f"search at 100,000 nodes, {what}", value, "ms", 100)
    return int(missed > 0)


def searched(browser: Browser) -> dict[str, float]:
    """Milliseconds of a search in about 100,000 nodes in closed modules."""
    with Server(VIEWER, {"PYTHONPATH": str(ROOT / "tests/support")}) as server:
        page = _page(browser, f"{server.url}/?graph=vast")
        view = View(page)
        found = {
            "the first": view.ask(_SEARCH, "softmax layer.7"),
            "by words": view.ask(_SEARCH, "matmul layer.3"),
            "by size": view.ask(_SEARCH, "bytes>1kb"),
            "by path": view.ask(_SEARCH, "matmul -> * -> * -> nn.softmax"),
        }
        page.close()
    return found


if __name__ == "__main__":
    raise SystemExit(main())
