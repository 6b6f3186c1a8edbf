"""A recording of a compile in Chromium: listed, folded, filtered, stepped, read side by side."""

import pytest

from app_in_browser import PAGE, settle
from browser import LONG
from crafted.recorded import recorded
from relascope.viz.sessions.store import OPEN

pytestmark = pytest.mark.browser
MANY = 3000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("recorded") / "run.rsc", passes=MANY)


@pytest.fixture
def opened(streamlit_page, path):
    def open_(**more):
        page = streamlit_page(PAGE, env={OPEN: str(path)}, **more)
        page.locator(".row").first.wait_for()
        settle(page)
        return page

    return open_


def listed(page):
    return page.locator(".row .title").all_text_contents()


def chosen(page):
    return page.locator(".row[aria-selected=true] .title").text_content()


def simplify(page):
    page.locator(".list").focus()
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    settle(page)


def test_thousands_of_passes_are_folded_filtered_searched_chosen_read_and_handed_on(
    opened, tmp_path
):
    page = opened()
    assert chosen(page) == "Breaks", "it opens on what failed"
    page.get_by_text("no axis 7 here").first.wait_for()
    assert len(listed(page)) < 60, "only rows in sight are drawn"
    page.locator(".filters button.all .hits", has_text=str(MANY + 6)).wait_for()
    tree = page.locator(".list")
    tree.focus()
    page.keyboard.press("Home")
    assert chosen(page) == "sequential"
    page.keyboard.press("ArrowRight")
    settle(page)
    assert chosen(page) == "FoldTranspose"
    page.locator(".rs[data-ready]").wait_for()
    for _ in range(2):  # to what it ran in, which is folded then
        page.keyboard.press("ArrowLeft")
    assert "FoldTranspose" not in listed(page)
    search = page.get_by_role("searchbox")
    search.fill("foldtr")
    assert listed(page) == ["sequential", "FoldTranspose"]
    search.fill("")
    page.locator(".filters button.failed").click()
    assert listed(page) == ["Breaks"]
    page.locator(".filters button.all").click()
    page.locator(".open-all").click()
    assert "FoldTranspose" in listed(page)
    page.locator(".filters button.all").click()
    page.locator(".fold-all").click()
    assert "FoldTranspose" not in listed(page)
    page.locator(".row .arrow").first.click()  # the first alone
    assert "FoldTranspose" in listed(page)
    few = listed(page)[:6]
    simplify(page)  # by keys that come fast
    page.wait_for_url("**step=4**", timeout=LONG)
    assert chosen(page) == "tir.Simplify"
    page.locator(".line.changed").first.wait_for()
    assert page.locator(".left mark").all_text_contents() == [" * 1"]
    receive = "list.receive({ data: { ...list.data, selected: 0, done: list.count - 1 } })"
    page.locator(".passes").evaluate(f"({{ steps: list }}) => {receive}")
    assert chosen(page) == "tir.Simplify", "an answer to an earlier key undoes nothing"

    def reloaded():
        page.reload()
        page.locator(".row").first.wait_for()
        settle(page)

    back, on = (page.get_by_role("button", name=f"{way} change") for way in ("Previous", "Next"))
    back.click()
    back.click()  # at once, from the one chosen by the click before
    assert chosen(page) == "FoldTranspose" and back.is_disabled()
    page.get_by_text("in sequential").wait_for()
    on.click()
    on.click()
    settle(page)
    assert chosen(page) == "tir.Simplify"
    reloaded()
    assert listed(page)[:6] == few
    page.locator(".line.changed").first.wait_for()
    assert chosen(page) == "tir.Simplify"
    page.locator(".filters button.changed").click()
    search.fill("foldtr")
    reloaded()
    assert listed(page) == ["sequential", "FoldTranspose"]
    assert search.input_value() == "foldtr"
    assert page.locator(".filters [aria-pressed=true]").text_content().startswith("Changed")
    # What was sent before, and comes after, changes nothing.
    search.fill("")
    page.locator(".filters button.all").click()
    page.locator(".line.changed").first.wait_for()
    shown = page.locator(".diff")
    before = shown.evaluate("({ diff: { texts, sent } }) => ({ texts, sent })")
    tree.focus()
    page.keyboard.press("ArrowUp")
    page.locator(".line.changed").first.wait_for(state="detached")
    shown.evaluate("(root, late) => root.diff.receive(late)", before)
    page.wait_for_timeout(200)
    assert not page.locator(".line.changed").count()
    # Text stands in two columns where there is room.
    simplify(page)
    page.get_by_role("button", name="Hand on").click()
    page.get_by_role("button", name="Put all passes").click()
    with page.expect_download(timeout=LONG) as download:
        page.get_by_role("button", name="Download the page").click(timeout=LONG)
    download.value.save_as(tmp_path / "run.html")
    file = page.context.new_page()
    file.goto(f"{(tmp_path / 'run.html').as_uri()}#step=1")
    file.locator(".step-title").get_by_text("FoldTranspose").wait_for(timeout=LONG)
    file.close()
    page.keyboard.press("Escape")
    for width, columns in ((1280, 2), (390, 1)):
        page.set_viewport_size({"width": width, "height": 900})
        page.locator(".line.changed").first.wait_for()
        sides = (page.locator(f".line.changed .{side}") for side in ("left", "right"))
        boxes = [side.first.bounding_box() for side in sides]
        assert (boxes[0]["y"] == boxes[1]["y"]) is (columns == 2)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, "nothing stands beyond the edge"
