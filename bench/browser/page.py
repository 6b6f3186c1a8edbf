"""How long the page takes, as a person at it sees it, in Chromium."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[1]))

from common import ROOT

from app_in_browser import ask, settle
from browser import OPEN_SIDEBAR, Server, browsing

if TYPE_CHECKING:
    from playwright.sync_api import Page

_DRAWN = """before => {
    for (const element of document.querySelectorAll('*')) {
        const drawing = element.shadowRoot?.querySelector('.rs[data-ready]');
        if (drawing && drawing.dataset.ready !== before) {
            window.drawn = performance.now();
            return true;
        }
    }
    return false;
}"""
"""Looked at before each frame, by the browser's clock: the driver's own time is no part of it."""

_ALONE = (
    "(() => { const m = v.aloneMark(v.index.get(a)), r = v.main.getBoundingClientRect();"
    " return [r.left + v.x + (m.x + 7) * v.zoom, r.top + v.y + m.y * v.zoom]; })()"
)
"""Where the mark at a module's frame stands on the page."""

_CLICKED = "addEventListener('click', () => { window.clicked = performance.now(); }, true)"


_SETTLED = """() => {
    const quiet = document.querySelector('[data-testid=stApp]')?.dataset.testScriptState
        === 'notRunning' && !document.querySelector('[data-testid=stProgress]')
        && document.body.innerText.includes('kept for the backward')
        && [...document.querySelectorAll('*')].some(e => e.shadowRoot?.querySelector(
            '.rs[data-ready]')?.getBoundingClientRect().width);
    if (!quiet) window.quiet = null;
    else window.quiet ??= performance.now();
    return quiet && performance.now() - window.quiet > 500;
}"""
"""For half a second nothing has run, and the cut is there; `quiet` is when that began."""


def training_to_settled(ir: str) -> float:
    """Seconds from the click on *Training* to the BERT layer's cut with all that stands beside it.

    The engine is warm: the page has drawn the model.
    """
    with _page(f"ir={ir}") as page:
        page.locator(".rs[data-ready]").wait_for()
        settle(page)
        page.evaluate(_CLICKED)
        page.get_by_text("Training", exact=True).click()
        began = page.evaluate("window.clicked")
        page.get_by_role("tab", name="Gradient & cut").click()
        page.wait_for_function(_SETTLED, polling="raf")
        return float(page.evaluate("window.quiet") - began) / 1000


def choose_to_drawn() -> float:
    """Seconds from choosing the BERT layer, which was not loaded before, to its drawn graph.

    The engine is warm: the page has drawn another model. The wait ends when the viewer says that
    it has painted the new graph.
    """
    with _page() as page:
        drawing = page.locator(".rs[data-ready]")
        drawing.wait_for()
        before = drawing.get_attribute("data-ready")
        _choose(page, "Model", "MLP")
        page.wait_for_function(_DRAWN, arg=before)
        # Another seed, or the page would only remember the model it opened with.
        page.get_by_text("Settings", exact=True).click()
        seed = page.get_by_role("spinbutton", name="Seed")
        seed.fill("7")
        seed.press("Enter")
        page.wait_for_timeout(4000)  # the other model once more: the same picture
        before = drawing.get_attribute("data-ready")
        page.get_by_role("combobox", name="Model").click()
        option = page.get_by_role("option", name="BERT layer", exact=True)
        option.wait_for()
        began = time.perf_counter()
        option.click()
        page.wait_for_function(_DRAWN, arg=before)
        return time.perf_counter() - began


def module_to_drawn(ir: str) -> float:
    """Seconds from a click on the frame of a layer of BERT base to the graph of it alone.

    The engine is warm: the page has drawn the whole model.
    """
    group = "group:encoder.layer.3"
    with _page(f"ir={ir}") as page:
        drawing = page.locator(".rs[data-ready]")
        drawing.wait_for()
        before = drawing.get_attribute("data-ready")
        _choose(page, "Model", "BERT base")
        page.wait_for_function(_DRAWN, arg=before)
        settle(page)
        ask(page, 0, f"v.focus('{group}')")
        settle(page)
        before = drawing.get_attribute("data-ready")
        page.evaluate(_CLICKED)
        page.mouse.click(*ask(page, 0, _ALONE, group))
        page.locator(".rs-piece").wait_for()
        page.wait_for_function(_DRAWN, arg=before)
        return float(page.evaluate("(window.drawn - window.clicked) / 1000"))


def step_to_repainted(title: str, ir: str) -> list[float]:
    """Seconds from a click on a step that has run to the repainted graph, click by click.

    Each step of the inference pipeline is chosen once before, so that its graph is known.
    """
    from playwright.sync_api import TimeoutError

    seconds = []
    with _page(f"ir={ir}") as page:
        page.locator(".rs[data-ready]").wait_for()
        if title != "BERT layer":
            _choose(page, "Model", title)
        page.get_by_role("tab", name="Passes").click()
        page.evaluate(_CLICKED)
        rows = page.locator(".row")
        rows.first.wait_for()
        settle(page)
        drawing = page.locator(".rs[data-ready]:visible")
        steps = [*range(rows.count()), *range(rows.count() - 1, -1, -1)]
        for turn, row in enumerate(steps):
            drawing.wait_for()
            before = drawing.get_attribute("data-ready")
            rows.nth(row).locator(".title").click()
            if row == steps[turn - 1]:
                continue
            try:
                page.wait_for_function(_DRAWN, arg=before, timeout=5000)
            except TimeoutError:  # two steps that change nothing have one picture
                continue
            if turn >= rows.count():
                seconds.append(page.evaluate("(window.drawn - window.clicked) / 1000"))
            settle(page)
    return seconds


@contextmanager
def _page(query: str = "") -> "Iterator[Page]":
    with Server(ROOT / "app.py") as server, browsing() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(OPEN_SIDEBAR)
        page.set_default_timeout(600_000)
        page.goto(f"{server.url}/?{query}")
        yield page


def _choose(page: "Page", label: str, name: str) -> None:
    page.get_by_role("combobox", name=label).click()
    page.get_by_role("option", name=name, exact=True).click()


def command_line() -> float:
    """Seconds from the command to the JSON of BERT's graph."""
    began = time.perf_counter()
    command = [sys.executable, "cli.py", "graph", "bert", "--engine", "relay", "--json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    assert json.loads(done.stdout)["nodes"] > 1000
    return seconds


def main() -> int:
    """Measure, print, and return 0 where the bars are met."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    missed = False

    def told(what: str, seconds: float, promised: float) -> None:
        nonlocal missed
        missed |= seconds > promised
        print(f"{what}: {seconds:.2f} s, {promised:g} s promised", flush=True)

    told("from choosing the BERT layer to its drawn graph", choose_to_drawn(), 1)
    for ir in ("Relay", "Relax"):
        told(f"{ir}, from training to the BERT layer's cut, settled", training_to_settled(ir), 3)
    for title, ir in product(("BERT layer", "BERT base"), ("Relay", "Relax")):
        clicks = sorted(step_to_repainted(title, ir))
        what = f"{title}, {ir}, from a click on a step that has run to its graph: longest "
        told(f"{what}{clicks[-1]:.2f} s, median", clicks[len(clicks) // 2], 0.3)
    told("from the command to the JSON of BERT's graph", command_line(), 20)
    for ir in ("Relay", "Relax"):
        told(f"{ir}, from a click on a layer of BERT base to it alone", module_to_drawn(ir), 4)
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
