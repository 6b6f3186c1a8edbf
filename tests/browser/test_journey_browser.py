"""A model of one's own from its file to its times, in Chromium and on the real engine."""

import re

import pytest
import torch

from app_in_browser import ask, click_named, settle
from browser import LONG
from place import PAGES, ROOT
from relascope.samples import SAMPLES
from traces import save

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("script", "model"),
    [
        (PAGES / "whole_page.py", "mlp"),
        pytest.param(ROOT / "app.py", "bert_layer", marks=pytest.mark.exhaustive),
    ],
)
def test_a_file_of_ones_own_from_its_inputs_to_its_times(streamlit_page, tmp_path, script, model):
    page = streamlit_page(script, query=f"model={model}", height=960)
    page.get_by_role("tab", name="Graph").wait_for(timeout=2 * LONG)
    settle(page)

    def facts():
        return page.locator(".rs-strip").first.inner_text()

    assert f"{SAMPLES[model].parameters:,}".replace(",", "\u202f") + " parameters" in facts()
    page.get_by_role("combobox", name="Model").click()
    click_named(page, "A file of your own", "option")
    layers = torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Linear(24, 5)
    own = save(torch.nn.Sequential(*layers), (torch.randn(3, 12),), tmp_path / "own.pt")
    page.locator("input[type=file]").first.set_input_files(str(own))
    settle(page)
    inputs = page.get_by_role("textbox", name="Inputs, one a line")
    for given, said in (("input=3x11", "11|12|shape"), ("three by twelve", "three by twelve")):
        inputs.fill(given)
        inputs.press("Control+Enter")
        settle(page)
        assert re.search(said, page.locator("[data-testid=stAlert]").first.inner_text())
    inputs.fill("input=3x12")
    inputs.press("Control+Enter")
    settle(page)
    assert "nn.dense" in ask(page, 0, "d.node.title")
    if model != "mlp":  # two halves are built, which takes as long as all before
        page.get_by_text("Training", exact=True).first.click()
        settle(page)
    click_named(page, "Compile & time", "tab")
    page.get_by_label("Repeats").fill("5")
    page.get_by_label("Repeats").press("Enter")
    settle(page)
    click_named(page, "Run", exact=True)
    assert "own.pt" in facts()
