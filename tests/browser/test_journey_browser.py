"""A model of one's own from its file to its times, in Chromium and on the real engine.

Screenshots of each tab go to the folder that RELASCOPE_SCREENSHOTS names, else to a temporary one.
"""

import os
import re
from pathlib import Path

import pytest

from browser import LONG
from narrow_bert import PARAMETERS
from place import PAGES, ROOT

APP, NARROW = ROOT / "app.py", PAGES / "narrow_page.py"
pytestmark = pytest.mark.browser


class Journey:
    def __init__(self, page, folder) -> None:
        self.page, self.folder = page, folder
        page.get_by_role("tab", name="Graph").wait_for(timeout=2 * LONG)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing runs: no script, no engine, and the graph is drawn."""
        for _ in range(2):  # the answer of an engine starts the script once more
            self.page.wait_for_function(
                "() => document.querySelector('[data-testid=stApp]')"
                "?.dataset.testScriptState === 'notRunning'"
                " && !document.querySelector('[data-testid=stProgress]')",
                timeout=2 * LONG,
                polling=100,  # for each frame, a page that waits draws all the time
            )
            self.page.wait_for_timeout(400)

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()
        self.settle()

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()
        self.settle()

    def choose(self, label: str, option: str) -> None:
        self.page.get_by_role("combobox", name=label).click()
        self.page.get_by_role("option", name=option).click()
        self.settle()

    def shot(self, name: str) -> None:
        self.page.screenshot(path=str(self.folder / f"{name}.png"))

    def viewer(self):
        self.page.locator(".rs[data-ready]").wait_for(timeout=2 * LONG)
        return self.page.locator(".rs").evaluate(
            "root => { const v = root.getRootNode().relascopeViewer, d = v.drawing;"
            " const there = (_, i) => d.node.style[i] !== 'removed';"
            " return {nodes: d.counts.nodes, titles: d.node.title.filter(there),"
            " styles: d.node.style,"
            " ids: d.node.id, selected: v.selected}; }"
        )

    def facts(self) -> str:
        return self.page.locator(".rs-strip").first.inner_text()

    def error(self) -> str:
        return self.page.locator("[data-testid=stAlert]").first.inner_text()


@pytest.fixture
def folder(tmp_path):
    named = os.environ.get("RELASCOPE_SCREENSHOTS")
    path = Path(named) if named else tmp_path
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def journey(streamlit_page, folder):
    """Opens a page of the app, in Relay unless told otherwise."""

    def start(script=NARROW, query=""):
        return Journey(streamlit_page(script, query=query, height=960), folder)

    return start


@pytest.mark.parametrize("script", [NARROW, pytest.param(APP, marks=pytest.mark.exhaustive)])
def test_a_file_of_ones_own_from_its_inputs_to_its_times(journey, tmp_path, script):
    import torch

    journey = journey(script)
    page, shown = journey.page, PARAMETERS if script == NARROW else 7_087_872
    assert f"{shown:,}".replace(",", "\u202f") + " parameters" in journey.facts()
    journey.choose("Model", "A file of your own")

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(12, 24), torch.nn.Linear(24, 5)

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    own = tmp_path / "own.pt"
    torch.jit.trace(Own().eval(), torch.randn(3, 12)).save(str(own))
    page.locator("input[type=file]").first.set_input_files(str(own))
    journey.settle()
    inputs = page.get_by_role("textbox", name="Inputs, one a line")
    inputs.fill("x=3x11")  # the wrong shape
    inputs.press("Control+Enter")
    journey.settle()
    assert re.search(r"11|12|shape", journey.error())
    inputs.fill("three by twelve")
    inputs.press("Control+Enter")
    journey.settle()
    assert "three by twelve" in journey.error()
    inputs.fill("x=3x12")
    inputs.press("Control+Enter")
    journey.settle()
    assert "nn.dense" in journey.viewer()["titles"]

    journey.page.get_by_role("radio", name="Training").or_(
        page.get_by_role("button", name="Training", exact=True)
    ).first.click()
    journey.settle()
    journey.tab("Compile & time")
    page.get_by_label("Repeats").fill("5")
    page.get_by_label("Repeats").press("Enter")
    journey.settle()
    journey.press("Run")
    assert "own.pt" in journey.facts()
    journey.shot("own-file")
