"""The window is the picture's: heights, panes, what is dropped on it, and nothing that runs idle.

It comes back after a reload, and after the app's end. A file of one's own, to its times."""

import re
import signal

import pytest
import torch

from app_in_browser import MOMENT, PAGE, SHARE, ask, click_named, settle, wait
from browser import LONG, OPEN_SIDEBAR, Server
from place import PAGES, ROOT
from relascope.samples import SAMPLES
from traces import save

pytestmark = pytest.mark.browser

TABS = ("Graph", "Passes", "Gradient & cut")
ANIMATED = "() => document.getAnimations().map(a => a.animationName ?? a.transitionProperty)"


@pytest.fixture
def opened(streamlit_page):
    def start(tab, **more):
        query = f"mode=training&tab={tab.replace('&', '%26')}"
        page = streamlit_page(PAGE, query=query, sidebar=False, **more)
        page.locator(".rs[data-ready]:visible").wait_for()
        settle(page)
        return page

    return start


def choose(page):
    click_named(page, "Passes", "tab")
    click_named(page, "Previous")
    click_named(page, "Previous")
    ask(page, 0, "v.focus('d1')")
    page.wait_for_function("() => location.search.includes('node=d1')")
    settle(page)


def screen(page):
    wait(page, 0, "v.selected === 'd1'")
    settle(page)
    assert not page.locator("[data-testid=stException]").count()
    return (
        page.get_by_text(re.compile(r"^Step \d+ of \d+$")).inner_text(),
        page.locator("[role=tab][aria-selected=true]").inner_text(),
        ask(page, 0, "v.selected"),
        page.evaluate("location.search"),
    )


def look_elsewhere(page):
    group = ask(page, 0, "Object.keys(d.groups).find(g => d.groups[g].open)")
    ask(page, 0, "v.setToggles({[a]: false})", group)
    wait(page, 0, "!d.groups[a].open", group)
    page.evaluate(MOMENT, 500)  # the page is told a moment later
    settle(page)
    ask(page, 0, "(v.zoomBy(0.7), v.x += 31, v.y -= 17, v.redraw())")
    wait(page, 0, "v.x === JSON.parse(sessionStorage.getItem('relascope step_view')).x")
    settle(page)
    return seen(page)


def seen(page):
    opened = "Object.keys(d.groups).filter(g => d.groups[g].open)"
    return ask(page, 0, f"[v.zoom, v.x, v.y, ...{opened}]")


def test_the_picture_has_most_of_the_window_and_a_reload_brings_pane_and_screen_back(opened):
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
    click_named(page, "Passes", "tab")
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
    choose(page)
    edge.press("Enter")
    looked_at = look_elsewhere(page)
    before = screen(page)
    page.reload()
    page.locator(".rs[data-ready]:visible").wait_for()
    settle(page)
    assert screen(page) == before
    assert seen(page) == looked_at
    page.get_by_role("button", name="Show the pane: Steps").click()
    page.get_by_role("button", name="Previous").wait_for()
    page.wait_for_function(f"{wide} === {width + 54}")
    # What the button that opens the sidebar says of the screen.
    said = page.get_by_test_id("stExpandSidebarButton")
    text = said.evaluate("e => getComputedStyle(e, '::after').content")
    assert text.endswith('· Relay · training"')
    said.click()
    page.get_by_role("combobox", name="Model").wait_for()


_DRAG = """([names, kinds, folder]) => {
  const items = DataTransferItem.prototype, real = items.webkitGetAsEntry;
  if (folder) items.webkitGetAsEntry = () => ({ isDirectory: true, name: folder });
  const dataTransfer = new DataTransfer();
  for (const name of names) dataTransfer.items.add(new File(["no model, but words"], name));
  const more = { bubbles: true, cancelable: true, dataTransfer };
  for (const kind of kinds) document.querySelector("canvas, [data-testid=stApp]")
    .dispatchEvent(new DragEvent(kind, more));
  items.webkitGetAsEntry = real;
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
    page.keyboard.press("Escape")
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_app_ends_and_starts_again(chromium, tmp_path, end):
    own = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(OPEN_SIDEBAR)
    with Server(PAGE, own) as server:
        page = context.new_page()
        page.goto(server.url)
        page.get_by_role("tab", name="Graph").wait_for()
        settle(page)
        choose(page)
        looked_at = look_elsewhere(page)
        before = screen(page)
        server.process.send_signal(end)
        server.process.wait()
        with server:
            status = "[data-testid=stConnectionStatus]"
            page.wait_for_function(f"() => !document.querySelector('{status}')")
            assert screen(page) == before
            assert seen(page) == looked_at
            context.close()


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
