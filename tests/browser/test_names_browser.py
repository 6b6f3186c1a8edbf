"""Names in a model are text on the page, whatever they hold."""

import pytest

from app_in_browser import ask
from pages.hostile_names import HOSTILE
from place import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive]


def test_names_are_text_in_sentences_and_in_the_viewer(streamlit_page):
    page = streamlit_page(PAGES / "names_page.py")
    page.on("dialog", lambda dialog: page.problems.append(dialog.message))
    page.locator(".rs[data-ready]").wait_for()
    for i, name in enumerate(HOSTILE):
        said = page.locator(f".st-key-said{i}")
        assert said.inner_text().strip() == name
        assert said.locator("a, img, li, h1, [data-testid=stIconMaterial]").count() == 0
    ask(page, 0, "v.tooltip.fill(0)")
    tip = page.locator(".tip")
    assert len(tip.inner_text()) < 2000
    assert tip.locator("img").count() == 0
    assert tip.bounding_box()["height"] < 500
