"""How long a recording of a compile takes to open and to step through, in Chromium.

Run it with recordings of your own, as `relascope record` writes them: whole compiles of `bert` are
what its bars are about.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import common
from common import ROOT

from browser import Server, browsing
from relascope.viz.panels.shell.keeping import OPEN

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIRST, STEP = 3.0, 0.3  # seconds that are promised
_FIRST_DRAWN = """() => {
    for (const element of document.querySelectorAll('*')) {
        const shadow = element.shadowRoot;
        if (shadow?.querySelector('.rs[data-ready], .diff[data-ready]')) window.drawn = true;
        if (shadow?.querySelector('.run')) window.listed = true;
    }
    return window.drawn && window.listed && performance.now();
}"""
_STATE = """[...document.querySelectorAll('*')].map(
    e => e.shadowRoot?.querySelector('.rs[data-ready], .diff[data-ready]'))
    .filter(e => e?.getBoundingClientRect().width)
    .map(e => e.className + e.dataset.ready).join()"""
_NEW = f"before => {{ const now = {_STATE}; return now && now !== before && performance.now(); }}"
_PRESSED = "addEventListener('keydown', () => { window.pressed = performance.now(); }, true)"


def opened(page: Page, url: str) -> float:
    """Seconds from going to the page to its list and its first picture."""
    page.goto(url)
    return float(page.wait_for_function(_FIRST_DRAWN, polling="raf").json_value()) / 1000


def steps(page: Page, count: int) -> list[float]:
    """Seconds from a key to what the next pass changed, for passes that changed something."""
    from playwright.sync_api import TimeoutError

    page.evaluate(_PRESSED)
    page.locator(".filters button.changed").click()
    page.locator(".scroll").focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(3000)
    seconds = []
    for _ in range(count):
        before = page.evaluate(_STATE)
        page.keyboard.press("ArrowDown")
        try:
            found = page.wait_for_function(_NEW, arg=before, polling="raf", timeout=5000)
        except TimeoutError:  # the same picture: the pass around the one before, for one
            continue
        seconds.append((found.json_value() - page.evaluate("window.pressed")) / 1000)
        page.wait_for_timeout(150)
    return sorted(seconds)


def measured(path: Path, count: int) -> tuple[float, Sequence[float]]:
    """Of a recording: seconds to the first picture, and of each step.

    The server has just been started, as `relascope open` does it.
    """
    with Server(ROOT / "app.py", {OPEN: str(path)}) as server, browsing() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(600_000)
        first = opened(page, server.url)
        return first, steps(page, count)


def main() -> int:
    """Measure, print, and return 0 where the bars are met."""
    parser = common.options(__doc__, samples=False, repeats=0)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--steps", type=int, default=40, help="how many")
    args = parser.parse_args()
    missed = False
    for path in args.recordings:
        first, clicks = measured(path.resolve(), args.steps)
        median = clicks[len(clicks) // 2]
        size = path.stat().st_size / 2**20
        slow = clicks[len(clicks) * 9 // 10]
        print(
            f"{path.name}, {size:.1f} MiB: {first:.2f} s to the first picture ({FIRST:g} s "
            f"promised); a step takes {median:.2f} s in the median of {len(clicks)}, {slow:.2f} s "
            f"in the slowest tenth, {clicks[-1]:.2f} s at most ({STEP:g} s promised)"
        )
        missed |= first > FIRST or median > STEP
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
