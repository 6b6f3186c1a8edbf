"""How long the page takes, as a person at it sees it, in Chromium."""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

_DRAWN = """before => {
    for (const element of document.querySelectorAll('*')) {
        const drawing = element.shadowRoot?.querySelector('.rs[data-ready]');
        if (drawing && drawing.dataset.ready !== before) return true;
    }
    return false;
}"""


def choose_to_drawn(title: str = "BERT layer", other: str = "MLP") -> float:
    """Seconds from choosing a model that was not loaded before to its drawn graph.

    The engine is warm: the page has drawn another model. The wait ends when the viewer says that
    it has painted the new graph.
    """
    from browser import CHROMIUM, Server
    from playwright.sync_api import Page, sync_playwright

    def choose(page: Page, name: str) -> None:
        page.get_by_role("combobox", name="Model").click()
        page.get_by_role("option", name=name, exact=True).click()

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with Server(ROOT / "app.py") as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(server.url)
        drawing = page.locator(".rs[data-ready]")
        drawing.wait_for()
        before = drawing.get_attribute("data-ready")
        choose(page, other)
        page.wait_for_function(_DRAWN, arg=before)
        # Another seed, or the page would only remember the model it opened with.
        page.get_by_text("Settings", exact=True).click()
        seed = page.get_by_role("spinbutton", name="Seed")
        seed.fill("7")
        seed.press("Enter")
        page.wait_for_timeout(4000)  # the other model once more: the same picture
        before = drawing.get_attribute("data-ready")
        page.get_by_role("combobox", name="Model").click()
        option = page.get_by_role("option", name=title, exact=True)
        option.wait_for()
        began = time.perf_counter()
        option.click()
        page.wait_for_function(_DRAWN, arg=before)
        seconds = time.perf_counter() - began
        browser.close()
    return seconds


if __name__ == "__main__":
    print(f"from choosing the BERT layer to its drawn graph: {choose_to_drawn():.2f} s")
