"""The gallery: pages from disk with a picture of each, and the page that lists them."""

import sys
from pathlib import Path

import pytest

from engines import shared_fake
from graphs import transformer
from place import ROOT
from relascope.recorder.reading import read
from relascope.viz.handed_on.formats import graph_file
from relascope.viz.panels.tour import STOPS

sys.path.append(str(ROOT / "docs" / "gallery"))
import gallery  # isort: skip
import tour  # isort: skip

pytestmark = pytest.mark.browser


def _written(words, made: Path) -> None:
    made.write_bytes(graph_file(".html", transformer(1)))


def test_each_page_is_listed_with_its_picture_and_opens(tmp_path, chromium):
    listed = [gallery.Entry("One & two", f"<b>{n}</b>", "About.", ("graph", n)) for n in "ab"]
    index = gallery.build(tmp_path, listed, chromium, _written)
    page = chromium.new_context(offline=True).new_page()
    page.goto(index.as_uri())
    assert page.get_by_role("heading", level=2).all_inner_texts() == ["One & two"]
    assert page.get_by_role("link").all_inner_texts() == ["<b>a</b>", "<b>b</b>"]
    assert page.locator("li code").all_inner_texts() == ["relascope graph a", "relascope graph b"]
    assert page.evaluate("[...document.images].every(i => i.naturalWidth === 480)")
    page.get_by_role("link").first.click()
    page.locator("relascope-graph[data-ready]").wait_for()


def test_a_page_that_fails_is_not_listed(tmp_path, chromium):
    def broken(words, made: Path) -> None:
        made.write_text("<relascope-graph data-ready>a</relascope-graph><script>throw 1</script>")

    listed = [gallery.Entry("One", "a", "About.", ("graph", "a"))]
    with pytest.raises(RuntimeError, match=r"one-a\.html"):
        gallery.build(tmp_path, listed, chromium, broken)
    assert not (tmp_path / "index.html").exists()


def test_a_command_that_writes_nothing_ends_the_build(tmp_path):
    with pytest.raises(RuntimeError, match="There is no sample"):
        gallery.relascope(("graph", "nothing_like_it"), tmp_path / "page.html")


@pytest.mark.exhaustive
def test_the_tour_has_a_tab_for_each_stop():
    tabs = tour.tour(shared_fake("relay").call).tabs
    assert [t["title"] for t in tabs] == [f"{n}. {s.title}" for n, s in enumerate(STOPS, 1)]
    for stop, tab in zip(STOPS, tabs, strict=True):
        assert stop.words.replace("*", "") in {s.get("text") for s in tab["sections"]}
        assert len(tab["sections"]) > 1


def test_the_recordings_of_tvms_tutorials_are_whole():
    words = [e.words for e in gallery.entries() if e.group == "TVM's own tutorials"]
    found = [read(ROOT / path) for _, path in words]
    assert len(found) == 4
    assert all(f.whole and f.passes for f in found)


def test_its_pages_have_names_of_their_own():
    listed = gallery.entries()
    assert len({e.file for e in listed}) == len(listed) >= 40


@pytest.mark.exhaustive
def test_the_whole_gallery_opens_and_is_small(tmp_path, chromium):
    gallery.build(tmp_path, gallery.entries(), chromium)
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 60e6
