"""The window is the picture's: heights, panes, the folded sidebar, and nothing that runs idle."""

import pytest

from app_in_browser import PAGE, SHARE, settle

pytestmark = pytest.mark.browser

TABS = ("Graph", "Passes", "Gradient & cut")
ANIMATED = "() => document.getAnimations().map(a => a.animationName ?? a.transitionProperty)"


@pytest.fixture
def opened(streamlit_page):
    def start(tab, **more):
        page = streamlit_page(
            PAGE, query=f"mode=training&tab={tab.replace('&', '%26')}", sidebar=False, **more
        )
        page.locator(".rs[data-ready]:visible").wait_for()
        settle(page)
        return page

    return start


def test_the_picture_has_most_of_the_window_in_each_tab_and_a_pane_resizes(opened):
    page = opened(TABS[0])
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        page.locator(".rs[data-ready]:visible").wait_for()
        settle(page)
        assert page.evaluate(SHARE) > 0.7, tab
        assert page.evaluate("document.documentElement.scrollWidth") == 1280
    # The strategy is seen without a scroll, and so is the whole picture.
    assert page.get_by_role("combobox", name="Strategy").bounding_box()["y"] < 120
    bottom = page.locator(".foot:visible").bounding_box()
    assert bottom["y"] + bottom["height"] <= 900
    assert page.evaluate(ANIMATED) == []  # or a core is half busy for ever
    # A pane resizes and folds by mouse and keys, and stays so.
    page.get_by_role("tab", name="Passes").click()
    settle(page)
    wide = "document.querySelector('.st-key-pane_steps [data-testid=stColumn]').offsetWidth"
    width = page.evaluate(wide)
    edge = page.get_by_role("separator", name="Width of the pane: Steps")
    box = edge.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 60
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 70, y, steps=3)
    page.mouse.up()
    assert page.evaluate(wide) == width + 70
    edge.press("ArrowLeft")
    assert page.evaluate(wide) == width + 54
    page.get_by_role("button", name="Fold the pane: Steps").click()
    assert page.evaluate(wide) == 0
    page.get_by_role("button", name="Previous").wait_for(state="hidden")
    edge.press("Enter")
    page.get_by_role("button", name="Previous").wait_for()
    edge.press("Enter")
    page.reload()
    page.get_by_role("button", name="Show the pane: Steps").click()
    page.get_by_role("button", name="Previous").wait_for()
    page.wait_for_function(f"{wide} === {width + 54}")
    # What the button that opens the sidebar says of the screen.
    said = page.get_by_test_id("stExpandSidebarButton")
    text = said.evaluate("e => getComputedStyle(e, '::after').content")
    assert text.endswith('· Relay · training"')
    said.click()
    page.get_by_role("combobox", name="Model").wait_for()


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [800, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_window_reaches_everything(opened, width, dark):
    page = opened(TABS[0], width=width, height=844, dark=dark)
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        page.locator(".rs[data-ready]:visible").wait_for()
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for name in ("Fit", "Full screen"):
            box = page.get_by_role("button", name=name, exact=True).bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width, (tab, name)


_DRAG = """([names, kinds, folder]) => {
  if (folder) {
    const entry = { isDirectory: true, name: folder };
    DataTransferItem.prototype.webkitGetAsEntry = () => entry;
  }
  const dataTransfer = new DataTransfer();
  for (const name of names) dataTransfer.items.add(new File(["no model, but words"], name));
  const more = { bubbles: true, cancelable: true, dataTransfer };
  for (const kind of kinds) document.querySelector("canvas, [data-testid=stApp]")
    .dispatchEvent(new DragEvent(kind, more));
}"""


_COUNT = """() => {
  window.handed = 0;
  addEventListener("change", (e) => { window.handed += e.target.type === "file"; }, true);
}"""


def drag(page, names, *kinds, folder=""):
    page.evaluate(_DRAG, [list(names), list(kinds), folder])


def test_a_file_is_dropped_anywhere_and_opened_again_from_a_list(opened):
    page = opened("Graph")
    over = page.locator(".over:popover-open")
    drag(page, ["own.pt"], "dragenter", "dragover")
    for word in ("Drop it to open it", ".onnx", "a recording of a compile"):
        over.get_by_text(word, exact=True).wait_for()
    drag(page, ["own.pt"], "dragleave")
    assert not over.count()
    drag(page, ["own.pt"], "dragenter", "drop", folder="models")
    over.get_by_text("models is a folder").wait_for()
    assert "file=" not in page.url
    page.reload()
    page.locator(".rs[data-ready]:visible").wait_for()
    settle(page)
    page.emulate_media(color_scheme="dark")  # what is drawn is drawn once more
    page.locator(".rs.dark:visible").wait_for()
    page.evaluate(_COUNT)
    drag(page, ["own.pt"], "dragenter", "drop")
    page.wait_for_function("location.search.includes('model=own.pt')")
    settle(page)
    assert page.evaluate("handed") == 1
    page.goto(page.url.split("?")[0])
    page.locator(".rs[data-ready]:visible").wait_for()
    settle(page)
    page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_text("Files opened before").click()
    page.get_by_role("button", name="own.pt").click()
    page.wait_for_function("location.search.includes('model=own.pt')")
    settle(page)


@pytest.mark.exhaustive
def test_where_there_is_no_model_yet_the_page_says_what_can_be_opened(opened):
    page = opened("Graph")
    page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_role("combobox", name="Model", exact=False).first.click()
    page.get_by_role("option", name="A file of your own").click()
    card = page.locator(".card:visible")
    card.get_by_text("Drop a file anywhere on this page").wait_for()
    assert card.get_by_role("button", name="Choose a file").is_visible()
    drag(page, ["notes.zip"], "dragenter", "drop")
    page.locator(".over:popover-open").get_by_text("opened under Sessions").wait_for()
