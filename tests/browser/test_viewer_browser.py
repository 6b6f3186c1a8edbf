"""The viewer in Chromium: what a person sees and does, on a page of its own, behind the gate."""

import re

import pytest

from app_in_browser import GATED, TOKEN, View, ask, viewer_page
from browser import LONG
from pages.hostile_names import HOSTILE
from place import PAGES
from relascope.viz.drawing import javascript

pytestmark = pytest.mark.browser


def choose(page, graph):
    page.get_by_role("combobox", name="Graph").click()
    page.get_by_role("option", name=graph, exact=True).click()


def test_python_is_told_of_clicks_and_groups_and_another_graph_clears_a_selection(streamlit_page):
    page = viewer_page(streamlit_page, "graph=joint")
    view = View(page)
    view.ask("v.focus('grad_out')")
    page.get_by_text("selected: grad_out", exact=True).wait_for()
    assert "forward value read by the backward" in page.locator(".legend").inner_text()
    choose(page, "layer")
    view.wait("!v.nodeIndex.has('grad_out')")
    assert view.ask("v.selected") is None
    assert page.locator(".side").is_hidden()
    page.get_by_text("selected: None", exact=True).wait_for()
    assert "backward" not in page.locator(".legend").inner_text()
    soft = view.node("nn.softmax")
    view.ask("v.center(v.index.get(a))", soft)
    view.click(soft)
    side = page.locator(".side")
    side.get_by_role("heading", name="nn.softmax").wait_for()
    text = side.inner_text()
    for said in ("float32[1, 4, 14, 14]", "3.1 KiB (3,136 bytes)", "attention.self"):
        assert said in text
    assert re.search(r"axis\s+-1", text)
    page.get_by_text(f"selected: {soft}", exact=True).wait_for()
    assert view.ask("[...v.lit().boxes].length") == 3  # itself, one input, one reader
    # A link to an input selects and centres that node.
    side.get_by_role("button", name=re.compile("^add")).click()
    add = view.ask("v.selected")
    assert view.ask("d.node.title[v.nodeIndex.get(a)]", add) == "add"
    page.get_by_text(f"selected: {add}", exact=True).wait_for()
    # A folded constant stands in the details as text.
    view.ask("v.focus(a)", view.node("divide"))
    assert "4.0" in side.inner_text()
    page.keyboard.press("Escape")
    page.get_by_text("selected: None", exact=True).wait_for()
    assert side.is_hidden()
    # Groups open and close where they are.
    choose(page, "layers")
    view.wait("v.index.has('group:encoder.layer') && (v.fit(), true)")
    group = "group:encoder.layer.0.attention"
    rolled = "group:encoder.layer"
    assert view.ask("d.box.lines[v.index.get(a)][0]", rolled) == "encoder.layer × 12"
    view.click(rolled, dx=17.0)  # a click unrolls it
    view.wait("d.box.open[v.index.get(a)] === 1", rolled)
    if not view.ask("v.index.has(a)", group):
        view.click("group:encoder.layer.0", dx=17.0)
        view.wait("v.index.has(a)", group)
    view.ask("v.center(v.index.get(a))", group)
    page.wait_for_timeout(50)
    corner = view.spot(group, dx=0.0, dy=0.0)
    state = view.ask("d.box.open[v.index.get(a)]", group)
    view.click(group, dx=17.0, dy=15.0 if state else None)
    view.wait("d.box.open[v.index.get(a[0])] !== a[1]", [group, state])
    assert view.spot(group, dx=0.0, dy=0.0) == pytest.approx(corner, abs=1)
    page.mouse.dblclick(*view.spot(group, dx=80.0, dy=15.0))
    view.wait("d.box.open[v.index.get(a[0])] === a[1]", [group, state])
    mark = "(([g]) => { const m = v.aloneMark(v.index.get(g)), i = v.index.get(g); "
    mark += "return [m.x + 7 * m.scale - d.box.x[i], m.y - d.box.y[i]]; })(a)"
    dx, dy = view.ask(mark, [group])
    view.click(group, dx=dx, dy=dy)  # the arrow at its frame
    page.get_by_text("alone: encoder.layer.0.attention", exact=True).wait_for()
    page.get_by_role("button", name="Close all").click()
    view.wait("v.open.length === 0")
    page.get_by_text("toggled: {'*': False}", exact=True).wait_for()
    view.ask("v.select('group:encoder.layer')")
    page.get_by_role("button", name="Open this module alone").click()
    page.get_by_text("alone: encoder.layer", exact=True).wait_for()


def test_a_wide_picture_opens_where_most_of_its_first_nodes_are(graph_page):
    view = View(graph_page("layer", width=700))
    few = "v.solid.length >= 6 && v.solid.slice(0, 6)"
    assert view.ask(f"{few}.length") == 6
    # Two groups at the ends of a wide picture: the middle of all is between them.
    place = f"""({few}).forEach((i, k) => {{
        d.box.x[i] = k < 2 ? 90 * k : 50000 + 90 * k; d.box.y[i] = 0;
    }}), v.solid.length = 6, d.width = 51000, v.firstView(), v.solid.filter((i) => {{
        const x = d.box.x[i] * v.zoom + v.x; return x >= 0 && x <= v.wide;
    }}).length"""
    assert view.ask(place) == 4


def test_the_card_of_a_kernels_call_has_its_loops_and_its_text_folded(graph_page):
    page = graph_page("kernels", width=390)
    view, side = View(page), page.locator(".side")
    view.ask("v.focus('first')")
    if side.get_by_title("Show details").is_visible():  # folded where it is narrow
        side.get_by_title("Show details").click()
    rows = side.locator("dl").last
    assert rows.locator("dt").all_inner_texts() == ["total", "half"]
    loops = ["1 × 14, reduced over 64", "7 blockIdx.x × 2 vectorized"]
    assert rows.locator("dd").all_inner_texts() == loops
    text = side.locator("pre")
    assert text.is_hidden()
    while text.is_hidden():  # a card that is drawn anew between press and release takes no click
        side.get_by_text("Text, 13 lines").click()
        page.wait_for_timeout(50)
    assert "x: T.Buffer((1, 14, 64)" in text.inner_text()
    assert "T.reads" not in text.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    view.ask("v.focus('second')")  # what was unfolded once stays so
    text.filter(has_text="def other").wait_for()  # in sight
    view.ask("v.focus('operator')")
    assert not text.count()


def test_pan_zoom_and_keys_and_another_step_is_seen_where_its_nodes_are(graph_page):
    page = graph_page("layer")
    view = View(page)
    stage = page.locator("canvas.main").bounding_box()
    x, y = round(stage["x"]) + 300, round(stage["y"]) + 200
    here = [x - stage["x"], y - stage["y"]]
    page.mouse.move(x, y)
    before, far = view.ask("v.toWorld(...a)", here), view.ask("v.zoom")
    page.mouse.wheel(0, -300)
    view.wait("v.zoom > a", far)
    after = view.ask("v.toWorld(...a)", here)
    assert after == pytest.approx(before, abs=0.01)  # zoomed about the cursor
    zoom, left = view.ask("[v.zoom, v.x]")
    page.mouse.down()
    page.mouse.move(x + 80, y + 40, steps=4)
    page.mouse.up()
    assert view.ask("v.x") == pytest.approx(left + 80)
    assert view.ask("v.selected") is None  # a drag is no click
    page.keyboard.press("ArrowRight")
    assert view.ask("v.x") == pytest.approx(left + 10)
    page.keyboard.press("-")
    assert view.ask("v.zoom") == pytest.approx(zoom / 1.3)
    page.keyboard.press("f")
    assert view.ask("d.height * v.zoom <= v.high + 1 && d.width * v.zoom <= v.wide + 1")
    assert view.ask("v.y") >= -1
    view.ask("v.draw()")
    sizes = view.ask("v.painter.names.map(name => name.size)")
    assert len(sizes) == view.ask("d.box.kind.filter(kind => kind).length")
    assert min(sizes) >= 9  # pixels, of each module's name
    page.keyboard.press("/")
    assert page.locator(".find input").evaluate("e => e.getRootNode().activeElement === e")
    page.get_by_role("button", name="Shapes").click()
    assert view.ask("v.shapes")
    # Another step of a program is seen where its nodes are.
    view.ask("v.zoom = 4, v.center(0)")
    # What is held on to was far down on the screen, and is the first of all now.
    first = "d.box.y.indexOf(Math.min(...v.solid.map((i) => d.box.y[i])))"
    view.ask(f"v.center({first}), v.y += v.high / 3")
    moved = "{ ...d, box: { ...d.box, y: d.box.y.map((y) => y + 1) } }"
    view.ask(f"v.selected = d.box.id[{first}], v.keepView({moved})")
    assert view.ask(f"d.box.y[{first}] * v.zoom + v.y") == pytest.approx(72)
    # What was in sight is gone.
    for gone in ("v.x = -99999", "v.y = 99999"):
        view.ask(gone)
        assert not view.ask("v.inSight().length")
        view.ask("v.keepView(d)")
        assert view.ask("v.inSight().length")


def test_search_finds_marks_and_opens(graph_page):
    page = graph_page("layers")
    view = View(page)
    page.keyboard.press("Tab")
    box = page.locator(".find input")
    box.fill("softmax")
    assert page.locator(".hits").inner_text() == "12 matches"
    assert page.locator(".results button").count() == 12
    box.fill("softmax layer.7.")
    assert page.locator(".hits").inner_text() == "1 match"
    box.press("Enter")  # it is in closed groups, which open
    found = view.ask("d.node.id[v.finder.matches[0]]")
    view.wait("v.index.has(a) && v.selected === a", found)
    page.wait_for_timeout(100)
    x, y = view.spot(found)
    stage = page.locator("canvas.main").bounding_box()
    assert stage["x"] < x < stage["x"] + stage["width"]
    assert stage["y"] < y < stage["y"] + stage["height"]
    assert page.locator(".side h2").inner_text() == "nn.softmax"
    box.fill("no such thing")
    assert page.locator(".hits").inner_text() == "0 matches"


_CALLS = (
    "(() => { const count = { drawImage: 0 };"
    " const sheets = [CanvasRenderingContext2D, OffscreenCanvasRenderingContext2D];"
    " const names = ['fill', 'stroke', 'fillText', 'fillRect', 'roundRect', 'moveTo', 'drawImage'];"
    " const back = []; for (const { prototype } of sheets) for (const name of names) {"
    "  const real = prototype[name]; count[name] = 0; back.push([prototype, name, real]);"
    "  prototype[name] = function (...given) { count[name]++; return real.apply(this, given); }; }"
    " new Function('v', a)(v); v.painter.draw();"
    " for (const [prototype, name, real] of back) prototype[name] = real;"
    " return count; })()"
)


def test_a_frame_of_a_big_graph_is_few_calls(graph_page):
    page = graph_page("big")
    view = View(page)
    page.get_by_role("button", name="Open all").click()
    view.wait("v.solid.length > 5000")
    whole = view.ask(_CALLS, "v.fit(); v.painter.kept = null;")
    assert 1000 < whole["fillRect"] < 15_000  # two for a box, one for a module or a dot
    assert max(whole["fill"], whole["stroke"], whole["fillText"]) < 500  # names and pieces of lines
    for change in ("v.x -= 10", "v.zoom *= 1.1", "v.hover = v.solid[100]"):
        moved = view.ask(_CALLS, change)  # what was drawn is moved
        assert moved["drawImage"] <= 2
        assert moved["fillRect"] + moved["stroke"] + moved["fill"] < 10, change
    view.wait("v.painter.kept?.zoom === v.zoom")  # and drawn sharp where it rests
    near = view.ask(_CALLS, "v.hover = -1; v.zoom = 0.5; v.x = 0; v.y = -5000")
    assert 0 < near["fillText"] < 100
    assert 0 < near["roundRect"] < 200 and near["moveTo"] < 1000
    assert page.locator(".count").inner_text().startswith("5,702 nodes")


@pytest.mark.parametrize("dark", [False, True])
def test_narrow_and_dark(graph_page, dark):
    page = graph_page("layer", width=800, dark=dark)
    view = View(page)
    view.ask("v.focus(a)", view.node("nn.softmax"))
    side = page.locator(".side").bounding_box()
    root = page.locator(".rs").bounding_box()
    assert side["x"] >= root["x"]
    assert side["x"] + side["width"] <= root["x"] + root["width"]
    assert view.spot(view.node("nn.softmax"))[0] < side["x"]  # what is selected stays in sight
    assert page.locator(".bar").evaluate("e => e.scrollWidth <= e.clientWidth")
    assert view.ask("v.theme.name") == ("dark" if dark else "light")
    pixel = view.ask("[...v.ctx.getImageData(2, 2, 1, 1).data].slice(0, 3)")
    assert (sum(pixel) < 200) == dark


@pytest.mark.exhaustive
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


def test_an_empty_graph_says_so(graph_page):
    page = graph_page("empty")
    View(page)
    assert page.get_by_text("This graph has no nodes.").is_visible()


def test_an_open_page_takes_over_a_newer_script_and_an_element_may_be_moved(streamlit_page):
    page = viewer_page(streamlit_page, "graph=layer")
    view = View(page)
    view.ask("v.toggleAll(true), window.was = v")
    page.get_by_text("toggled: {'*': True}", exact=True).wait_for()
    boxes = view.ask("v.solid.length")
    newer = javascript.element().replace("nodes \\u00b7", "new nodes \\u00b7")
    page.add_script_tag(content=newer)
    view.wait("v !== window.was && window.was.gone && v.count.textContent.includes('new nodes')")
    assert view.ask("v.solid.length") == boxes  # as the person had opened them
    view.ask("v.focus(a)", soft := view.node("nn.softmax"))
    page.get_by_text(f"selected: {soft}", exact=True).wait_for()  # Python is told, as before

    view.ask("window.was = v, window.host = v.root.getRootNode().host, window.at = host.parentNode")
    page.evaluate("document.body.append(host), at.append(host)")
    page.wait_for_timeout(50)
    assert view.ask("v === window.was && !v.gone && d.node.id.length > 0")
    page.evaluate("host.remove()")
    page.wait_for_function("window.was.gone")  # nothing of it listens any more
    page.evaluate("at.append(host)")
    view.wait("v !== window.was && d.node.id.length > 0")
    assert view.ask("v.solid.length") == boxes


@pytest.fixture
def gated(streamlit_servers):
    return streamlit_servers(GATED, {"RELASCOPE_TOKEN": TOKEN})


@pytest.fixture
def context(chromium):
    made = chromium.new_context()
    made.set_default_timeout(LONG)
    yield made
    made.close()


def test_the_link_lets_a_browser_in_and_nothing_else_does(gated, context):
    page = context.new_page()
    assert page.goto(f"{gated.url}/?graph=layer").status == 403
    page.get_by_label("Or paste the token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    page.get_by_text("This is not the token.").wait_for()
    page.get_by_label("Or paste the token").fill(TOKEN)
    page.get_by_role("button", name="Open").click()
    page.locator(".rs[data-ready]").wait_for()
    assert page.url == f"{gated.url}/?graph=layer"
    assert page.evaluate("document.cookie").count("relascope") == 0

    other = context.new_page()  # the browser is in: a page of another port is not
    other.route("http://127.0.0.1:9/", lambda r: r.fulfill(body="<p>x", content_type="text/html"))
    other.goto("http://127.0.0.1:9/")
    opened = other.evaluate(
        "u => new Promise(done => { const s = new WebSocket(u, ['streamlit']);"
        " s.onopen = () => done('open'); s.onclose = () => done('closed') })",
        gated.url.replace("http", "ws") + "/_stcore/stream",
    )
    assert opened == "closed"
    page.reload()
    page.locator(".rs[data-ready]").wait_for()


@pytest.mark.exhaustive
def test_a_link_of_another_site_asks_once_more(gated, context):
    page = context.new_page()
    link = f"<a href='{gated.url}/?token={TOKEN}'>in</a> <a href='{gated.url}/?x=1'>again</a>"
    page.route("http://elsewhere.test/", lambda r: r.fulfill(body=link, content_type="text/html"))
    page.goto("http://elsewhere.test/")
    page.get_by_text("in", exact=True).click()
    page.locator(".rs[data-ready]").wait_for()
    page.goto("http://elsewhere.test/")
    page.get_by_text("again").click()
    page.get_by_role("link", name="Open the page").click()
    page.locator(".rs[data-ready]").wait_for()
