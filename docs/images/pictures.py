"""Takes the pictures of README and docs from the page as it is: `make pictures`.

`python docs/images/pictures.py time` takes those alone that are named. That one has times: take it
on a quiet machine.
"""

import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

from app_in_browser import ask, settle  # noqa: E402
from browser import Server, browsing  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDE, HIGH = 1280, 900
LONG = 600_000  # ms


def graph(page: "Page") -> None:
    """One BERT layer as it was imported: what the page opens with."""


def passes(page: "Page") -> None:
    """The step that joins the products of query, key and value."""
    _tab(page, "Passes")
    page.locator(".row").get_by_text("CombineParallelBatchMatmul", exact=True).click()
    _settle(page)
    # Not by a click on Next change, whose help would lie over the graph.
    joined = "d.node.style[i] === 'added' && d.node.title[i] === 'nn.batch_matmul'"
    ask(page, 0, f"v.focus(d.node.id.find((_, i) => {joined}))")


def gradient(page: "Page") -> None:
    """The joint graph around a tensor that the forward saves."""
    _tab(page, "Gradient & cut")
    _train(page)
    page.get_by_text("kept for the backward").first.wait_for()
    _settle(page)
    # It is in a module that is closed at first; showing it opens the modules around it.
    ask(page, 0, "v.focus(d.node.id[d.node.style.indexOf('captured')])")


def show(page: "Page") -> None:
    """The show of the joint graph, at a cut with little kept and at one of its tensors."""
    page.goto(f"{page.url.split('?')[0]}?show=1")
    page.locator(".rs.showing").wait_for()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)


def held(page: "Page") -> None:
    """What a step of a larger layer holds."""
    page.goto(f"{page.url.split('?')[0]}?model=llama_block&batch=4&tokens=128&engine=relax")
    _settle(page)
    _tab(page, "Gradient & cut")
    _train(page)
    _settle(page)
    heading = page.get_by_role("heading", name="Bytes held over one step")
    heading.evaluate("e => e.scrollIntoView({block: 'center'})")


def time(page: "Page") -> None:
    """Forward and backward against PyTorch eager."""
    _tab(page, "Compile & time")
    _train(page)
    _settle(page)  # a click on Run before the page is drawn anew would be lost
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("[data-testid=stVegaLiteChart]").first.wait_for()
    page.mouse.move(0, 0)


def side_by_side(page: "Page") -> None:
    """A linear layer in both IRs."""
    _tab(page, "Side by side")
    page.wait_for_function(
        "() => [...document.querySelectorAll('*')].filter(e => e.shadowRoot"
        "?.querySelector('.rs[data-ready]')?.getBoundingClientRect().width).length == 2"
    )
    _settle(page)
    ask(page, 0, "v.select(d.node.id[d.node.title.indexOf('nn.batch_matmul')])")
    page.get_by_text("same PyTorch operator", exact=True).wait_for()
    page.get_by_role("heading", name="Programs beside each other").scroll_into_view_if_needed()
    page.locator(".rs[data-ready]").nth(1).scroll_into_view_if_needed()


def against(page: "Page") -> None:
    """A layer with and without the step that joins products."""
    _tab(page, "Side by side")
    page.get_by_role("radio", name="Another pipeline", exact=True).click()
    _settle(page)
    passes = page.get_by_label("Passes of B", exact=True)
    passes.fill("default|-combine_batch_matmul")
    passes.press("Enter")
    page.get_by_text("They diverge at combine_batch_matmul").wait_for()
    _settle(page)
    page.get_by_role("heading", name="Programs beside each other").scroll_into_view_if_needed()
    page.locator(".rs[data-ready]").nth(1).scroll_into_view_if_needed()


SHOTS: "dict[str, Callable[[Page], None]]" = {
    s.__name__: s for s in (graph, passes, gradient, show, held, time, side_by_side, against)
}


def main(names: list[str]) -> None:
    """Take each picture on a page of its own."""
    with (
        tempfile.TemporaryDirectory() as config,
        browsing() as browser,
        Server(
            ROOT / "app.py", {**os.environ, "XDG_CONFIG_HOME": config, "XDG_DATA_HOME": config}
        ) as server,
    ):
        for name in names or SHOTS:
            page = browser.new_page(viewport={"width": WIDE, "height": HIGH}, color_scheme="light")
            page.set_default_timeout(LONG)
            page.goto(server.url)
            page.locator(".rs[data-ready]").wait_for()
            _settle(page)
            SHOTS[name](page)
            _settle(page)
            _write(page, ROOT / "docs" / "images" / f"{name}.png")
            page.close()


def _tab(page: "Page", name: str) -> None:
    page.get_by_role("tab", name=name).click()
    _settle(page)


def _train(page: "Page") -> None:
    """Switch to training in the sidebar, which is folded again."""
    page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_text("Training", exact=True).click()
    page.get_by_test_id("stSidebarHeader").hover()
    page.get_by_test_id("stSidebarCollapseButton").get_by_role("button").click()


def _settle(page: "Page") -> None:
    page.locator("[data-testid=stProgress]").first.wait_for(state="hidden")
    settle(page)


def _write(page: "Page", file: Path) -> None:
    """A screenshot, without its alpha channel and packed as small as it goes."""
    shot = Image.open(io.BytesIO(page.screenshot(animations="disabled")))
    shot.convert("RGB").save(file, optimize=True)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
