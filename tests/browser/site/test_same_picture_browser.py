"""The page and the static viewer on a session and a recording, in Chromium: the same picture."""

import pytest

from app_in_browser import PAGE, ask, click, click_named, settle, wait
from browser import LONG
from crafted.recorded import recorded
from engines import shared_fake
from relascope.commands.main import main

pytestmark = pytest.mark.browser

DRAWN = (
    "({boxes: d.box.id.map((id, i) => [id, d.box.title?.[i], d.box.x[i], d.box.y[i], d.box.w[i],"
    " d.box.h[i], d.box.shape[i], v.theme.styleOf(d.box.style[i])]),"
    " edges: d.edge.p.map((p, e) => [d.edge.s[e], d.edge.t[e], ...p]),"
    " legend: v.legendRows()})"
)
LINES = "lines => lines.map((line) => [line.className, line.innerHTML])"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that `viewer` wrote, and beside it a recording and what `diff` says."""
    folder = tmp_path_factory.mktemp("site")
    assert main(["viewer", "-o", str(folder)]) == 0
    both = ["diff", "bert_layer", "bert_layer", "--engine-b", "relax", "--passes", "default"]
    assert main([*both, "-o", str(folder / "both.html")], shared_fake) == 1
    recorded(folder / "bare.rsc")
    assert main(["open", str(folder / "bare.rsc"), "-o", str(folder / "run.rsc")]) == 0
    return folder


@pytest.fixture
def viewer(chromium, site):
    """Opens a file in the static viewer, or a page that was handed on, without a network."""
    size = {"width": 1280, "height": 900}
    context = chromium.new_context(viewport=size, offline=True, bypass_csp=True)
    page = context.new_page()

    def open_(name):
        handed_on = name.endswith(".html") and name != "both.html"
        page.goto((site / (name if handed_on else "index.html")).as_uri())
        if not handed_on:
            page.locator("input[type=file]").set_input_files(site / name)
        wait(page, 0, "d.node.id.length > 0")
        return page

    yield open_
    context.close()


def picture(page, side=0):
    return ask(page, side, DRAWN)


def save(page, button, path):
    with page.expect_download(timeout=LONG) as download:
        button.click()
    download.value.save_as(path)


def test_captures_steps_and_recordings_are_the_same_picture_and_a_tab_is_handed_on(
    streamlit_page, viewer, site
):
    page = streamlit_page(PAGE, query="mode=training")
    settle(page)
    page.get_by_role("button", name="Sessions").click()
    save(page, page.get_by_role("button", name="Replay file"), site / "session.zip")
    settle(page)
    page.get_by_role("button", name="Close", exact=True).click()
    page.get_by_role("dialog").wait_for(state="hidden")
    both = page, static = page, viewer("session.zip")
    for one in both:
        one.get_by_role("tab", name="Gradient & cut").click()
        wait(one, 0, "d.node.id.includes('gd')")
    settle(page)
    captures = picture(page)
    assert picture(static) == captures
    assert any(look["label"] == "captured by the forward" for *_, look in captures["boxes"])
    for one in both:
        one.get_by_role("tab", name="Passes").click()
        one.locator(".row:visible").nth(3).wait_for()
    settle(page)
    titles = page.locator(".row:visible .title").all_inner_texts()
    assert static.locator(".row:visible .title").all_inner_texts() == titles
    looks = set()
    gradient = titles.index("gradient")
    for step in (0, gradient - 1, gradient, len(titles) - 1):
        for one in both:
            one.locator(".row:visible .title").nth(step).click()
        static.locator(f".board[data-step='{step}']").wait_for(timeout=LONG)
        settle(page)
        after = picture(page)
        assert picture(static) == after, titles[step]
        looks |= {look.get("label") for *_, look in after["boxes"]}
    assert looks >= {"added", "removed", "changed"}
    # The tab, and all of the session, as a page of their own.
    page.get_by_role("button", name="Hand on").click()
    page.get_by_role("button", name="Put all steps into one page").click()
    downloads = page.get_by_role("button", name="Download the page")
    save(page, downloads, site / "steps.html")
    static = viewer("steps.html")
    assert static.locator(".steps .row").count() == len(titles)
    static.keyboard.press(",")
    static.wait_for_url("**#*step=*", timeout=LONG)
    page.get_by_role("button", name="Put all of the session into one page").click()
    save(page, downloads.nth(1), site / "session.html")
    static = viewer("session.html")
    assert static.get_by_role("tab").all_inner_texts() == ["Graph", "Passes", "Gradient & cut"]
    static.get_by_role("tab", name="Graph").focus()
    static.keyboard.press("ArrowRight")
    static.locator(".steps .row.selected").wait_for(timeout=LONG)
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="Model").click()
    click_named(page, "A file of your own", "option")
    page.locator("input[type=file]").first.set_input_files(site / "run.rsc")
    both = page, static = page, viewer("run.rsc")
    page.locator(".row").first.wait_for()
    settle(page)
    for number, name in ((1, "FoldTranspose"), (4, "tir.Simplify")):
        for one in both:
            one.locator(".row .title", has_text=name).click()
        static.locator(f".board[data-step='{number}']").wait_for(timeout=LONG)
        settle(page)
        if number == 1:
            assert picture(static) == picture(page)
            click_named(page, "Text", "radio", exact=True)
        page.locator(".diff .line").nth(1).wait_for()
        texts = [one.locator(".diff .line").evaluate_all(LINES) for one in both]
        assert texts[0] == texts[1] and any("changed" in look for look, _ in texts[0])


def aligned(page, side):
    return ask(page, side, "d.node.id.filter((_, i) => d.node.style[i] === 'aligned')")


def place(page, side):
    return ask(page, side, "[v.x, v.y, v.zoom]")


def test_relay_beside_relax_are_the_same_two_pictures_and_a_click_shows_the_counterpart(
    streamlit_page, viewer
):
    page, static = streamlit_page(PAGE, query="tab=Side by side"), viewer("both.html")
    for one in (page, static):
        wait(one, 1, "d.node.id.length > 0")
    page.get_by_text("What differs between A and B").wait_for()
    settle(page)
    marked = 0
    for side in (0, 1):
        ours, theirs = (picture(one, side) for one in (page, static))
        assert ours["edges"] == theirs["edges"]
        for box, other in zip(ours["boxes"], theirs["boxes"], strict=True):
            chosen = box[-1].get("label", "").startswith("chosen")
            marked += chosen  # on the page the first difference is chosen
            assert box[:-1] == other[:-1] and (chosen or box == other)
    assert marked > 0

    left, right = (ask(page, side, "v.root.getBoundingClientRect().toJSON()") for side in (0, 1))
    assert abs(left["y"] - right["y"]) < 2
    assert left["x"] + left["width"] < right["x"]

    # A node.
    ask(page, 0, "v.center(v.index.get('d1'))")
    before = place(page, 0)
    click(page, 0, "d1")
    wait(page, 1, "v.selected === 'm1'")
    settle(page)
    assert aligned(page, 1) == ["p1", "m1"]
    assert aligned(page, 0) == ["d1"]
    assert ask(page, 0, "v.selected") == "d1"  # the echo is no choice
    page.get_by_text("same PyTorch operator", exact=True).wait_for()
    assert place(page, 0)[2] == before[2]

    # The other way; the view that was clicked stays where it is.
    ask(page, 1, "v.center(v.index.get('a'))")
    before = place(page, 1)
    click(page, 1, "a")
    wait(page, 0, "v.selected === 'r'")
    settle(page)
    assert aligned(page, 0) == ["r"]
    assert aligned(page, 1) == ["a"]
    assert place(page, 1) == pytest.approx(before)

    # A module.
    ask(page, 0, "v.select('group:layers.0')")
    wait(page, 1, "v.selected === 'group:layers.0'")
    page.get_by_text("same module only", exact=True).wait_for()

    # A narrow page has one above the other.
    page.set_viewport_size({"width": 1000, "height": 1000})
    settle(page)
    left, right = (ask(page, side, "v.root.getBoundingClientRect().toJSON()") for side in (0, 1))
    assert left["y"] + left["height"] < right["y"]
    assert abs(left["x"] - right["x"]) < 2
