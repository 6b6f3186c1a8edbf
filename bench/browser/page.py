"""How long the page takes, as a person at it sees it, in Chromium."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[1]))

from common import ROOT

from app_in_browser import settle
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
    The engine is warm: the page has drawn the model."""
    with _page(f"ir={ir}") as page:
        page.locator(".rs[data-ready]").wait_for()
        settle(page)
        page.evaluate(_CLICKED)
        page.get_by_text("Training", exact=True).click()
        began = page.evaluate("window.clicked")
        page.get_by_role("tab", name="Gradient & cut").click()
        page.wait_for_function(_SETTLED, polling="raf")
        return float(page.evaluate("window.quiet") - began) / 1000


def step_to_repainted(title: str, ir: str) -> list[float]:
    """Seconds from a click on a step that has run to the repainted graph, click by click. Each step
    of the inference pipeline is chosen once before, so that its graph is known."""
    from playwright.sync_api import TimeoutError

    seconds = []
    with _page(f"ir={ir}") as page:
        page.locator(".rs[data-ready]").wait_for()
        if title != "BERT layer":
            page.get_by_role("combobox", name="Model").click()
            page.get_by_role("option", name=title, exact=True).click()
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


_OPENED = """async () => {
    const within = document.querySelector('relascope-graph').shadowRoot;
    const drawn = () => within.querySelector('.picture')?.shadowRoot?.querySelector('[data-ready]')
        && (within.querySelector('.board')?.dataset.step ?? true);
    while (!drawn()) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now() / 1000;
}"""
"""Seconds from the begin of the page until a file's graph is drawn, and what a pass did."""

_STEPPED = """async (way) => {
    const board = document.querySelector('relascope-graph').shadowRoot.querySelector('.board');
    const times = [], button = board.firstChild.shadowRoot.querySelectorAll('.walk button')[way];
    while (!button.disabled) {
        const { step } = board.dataset, began = performance.now();
        button.click();
        while (board.dataset.step === step) await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - began);
    }
    return times;
}"""
"""Milliseconds of each step to the end of the list, backward (0) or forward (1)."""


def static_viewer(folder: Path) -> Iterator[tuple[str, float, float, str]]:
    """What is measured of the static viewer, the figure, its bar and the unit; its files are opened
    from disk, without a network. A recording of the BERT layer's compile, and a graph of 100,000
    nodes, are made in `folder`."""
    from recording import run

    from graphs import transformer
    from relascope.commands.main import main as command
    from relascope.viz.handed_on.formats import graph_file

    recording, site = folder / "run.rsc", folder / "site"
    run("save", "relay", str(folder), "bert_layer")
    run("compile", "relay", str(folder), "graphs")
    command(["open", str(recording), "-o", str(recording)])
    command(["viewer", "-o", str(site)])
    size = sum(file.stat().st_size for file in site.iterdir())
    yield "the static viewer's files", size / 1e6, 1, "MB"
    large = transformer(1640)
    (folder / "graph.json").write_bytes(graph_file(".json", large))
    with browsing() as browser:
        context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})

        def opened(name: str) -> "tuple[Page, float]":
            page = context.new_page()
            page.goto((site / "index.html").as_uri())
            page.locator("input[type=file]").set_input_files(folder / name)
            return page, page.evaluate(_OPENED)

        page, seconds = opened(recording.name)
        yield "from the recording of the BERT layer to its drawn page", seconds, 2, "s"
        times = sorted(page.evaluate(_STEPPED, 0) + page.evaluate(_STEPPED, 1))
        what = f"from a click to the next of {len(times)} changes, median "
        yield f"{what}{times[len(times) // 2]:.0f} ms, longest", times[-1] / 1000, 0.3, "s"
        _, seconds = opened("graph.json")
        yield f"from a graph of {len(large):,} nodes to its drawing", seconds, 2, "s"


@contextmanager
def _page(query: str = "") -> "Iterator[Page]":
    with Server(ROOT / "app.py") as server, browsing() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(OPEN_SIDEBAR)
        page.set_default_timeout(600_000)
        page.goto(f"{server.url}/?{query}")
        yield page


def main() -> int:
    """Measure, print, and return 0 where the bars are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewer", action="store_true", help="the static viewer alone")
    missed = False

    def told(what: str, figure: float, promised: float, unit: str = "s") -> None:
        nonlocal missed
        missed |= not figure <= promised  # nor is what is no number
        print(f"{what}: {figure:.2f} {unit}, {promised:g} {unit} promised", flush=True)

    only = parser.parse_args().viewer
    with tempfile.TemporaryDirectory(prefix="relascope-bench-") as folder:
        for row in static_viewer(Path(folder)):
            told(*row)
    if only:
        return int(missed)
    for ir in ("Relay", "Relax"):
        told(f"{ir}, from training to the BERT layer's cut, settled", training_to_settled(ir), 3)
    for title, ir in product(("BERT layer", "BERT base"), ("Relay", "Relax")):
        clicks = sorted(step_to_repainted(title, ir))
        what = f"{title}, {ir}, from a click on a step that has run to its graph: longest "
        told(f"{what}{clicks[-1]:.2f} s, median", clicks[len(clicks) // 2], 0.3)
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
