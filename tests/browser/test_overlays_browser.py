"""Moving, searching and colouring in the viewer: one page, and what a person sees on it."""

import json

import pytest

from app_in_browser import View
from relascope.viz.drawing import palette

pytestmark = pytest.mark.browser


@pytest.fixture
def view(graph_page):
    def start(graph):
        found = View(graph_page(graph))
        found.titles = lambda what: found.ask(f"{what}.map(n => d.node.full[n])")
        return found

    return start


def find(view, text):
    view.page.locator(".find input").fill(text)
    return view.titles("v.finder.matches")


def test_the_search_knows_fields_sizes_and_paths_and_overlays_colour_and_count(view, tmp_path):
    seen = view("layer")
    assert set(find(seen, "op:softmax")) == {"nn.softmax"}
    assert set(find(seen, "softmax shape:14")) == {"nn.softmax"}
    assert find(seen, "softmax shape:999") == []
    assert set(find(seen, "attr:axis=-1 op:soft")) == {"nn.softmax"}
    assert find(seen, "module:query")
    modules = seen.ask("v.finder.matches.map(n => d.strings[d.node.scope[n]])")
    assert all("query" in module for module in modules)
    sizes = "v.finder.matches.map(n => d.node.bytes[n])"
    for text, least in (("bytes>1kb", 1000), ("bytes>=3KiB", 3072)):
        find(seen, text)
        found = seen.ask(sizes)
        assert found and min(found) > least - 1
    assert find(seen, "bytes>1GB") == []
    # Along edges: what is on the way is marked as well, what ends it is gone through.
    assert find(seen, "matmul -> * -> * -> nn.softmax") == ["nn.softmax"]
    way = seen.titles("v.finder.found")
    assert way[0].endswith("matmul") and len(way) == 4
    assert find(seen, "matmul → ** → nn.softmax") == ["nn.softmax"]
    assert len(seen.titles("v.finder.found")) >= 4
    assert find(seen, "nn.softmax -> nn.softmax") == []
    # Count, next and previous by buttons.
    count = len(find(seen, "reshape"))
    seen.page.get_by_role("button", name="Next match").click()
    assert seen.page.locator(".hits").inner_text() == f"1 of {count}"
    seen.page.get_by_role("button", name="Previous match").click()
    assert seen.page.locator(".hits").inner_text() == f"{count} of {count}"
    # Overlays colour, count, and fill a table that follows.
    find(seen, "")
    page = seen.page
    colours = page.get_by_role("combobox", name="Colour by")
    colours.select_option("bytes")
    seen.wait("d.box.style.every(s => s.startsWith('heat'))")
    largest = "d.node.bytes.indexOf(Math.max(...d.node.bytes))"
    assert seen.ask(f"d.box.style[d.node.box[{largest}]]") == "heat4"
    assert "Bytes of the result" in page.locator(".legend").inner_text()
    assert "KiB" in page.locator(".legend").inner_text()
    page.get_by_role("button", name="Table", exact=True).click()
    rows = page.locator(".sheet .rows .tr")
    assert seen.ask("d.node.bytes[v.table.rows[0]] === Math.max(...d.node.bytes)")
    rows.nth(2).click()
    chosen = seen.ask("d.node.id[v.table.rows[2]]")
    seen.wait("v.selected === a", chosen)
    last = seen.ask("d.node.id[v.table.rows.at(-1)]")
    seen.ask("v.focus(a)", last)  # and the table follows
    page.locator(".sheet .tr[aria-selected=true]").wait_for()
    page.get_by_role("columnheader", name="Node").click()
    titles = seen.ask("v.table.rows.map(n => d.node.full[n])")
    assert titles == sorted(titles, key=str.lower) or titles[0] <= titles[-1]
    colours.select_option("module")
    seen.wait("d.box.style.some(s => s.startsWith('sort'))")
    # A person's own values: numbers and words, by id, name or module.
    ident = seen.node("nn.softmax")
    own = tmp_path / "own.json"
    own.write_text(json.dumps({ident: 7.5, "nobody": 1}))
    page.locator(".file").set_input_files(own)
    seen.wait("v.overlays.chosen === 'own'")
    assert seen.ask("d.box.style[v.index.get(a)]", ident) == "heat1"
    assert '"nobody"' in page.locator(".said").inner_text()
    assert seen.ask("v.overlays.describe(v.nodeIndex.get(a))", ident) == "own.json: 7.50"
    own.write_text(json.dumps({"nn.softmax": "hot", "attention.self": "warm"}))
    page.locator(".file").set_input_files(own)
    seen.wait("d.box.style[v.index.get(a)].startsWith('sort')", ident)
    for wrong, word in (("[1]", "not a JSON object"), ("{", "not JSON"), ('{"a": []}', '"a"')):
        own.write_text(wrong)
        page.locator(".file").set_input_files(own)
        seen.wait("v.said.textContent.includes(a)", word)
    colours.select_option("")
    seen.wait("!d.box.style.some(s => s.startsWith('sort'))")


def test_keys_walk_along_edges_and_come_back(view):
    seen = view("joint")
    page = seen.page
    page.locator("h1, body").first.evaluate("() => document.activeElement?.blur()")
    page.keyboard.press("/")  # from anywhere
    assert seen.ask("v.root.getRootNode().activeElement === v.input")
    seen.ask("(v.main.focus(), v.toggleAll(true))")
    first = seen.ask("d.node.id[d.node.style.indexOf('captured')]")
    page.keyboard.press("]")
    assert seen.ask("v.selected") == first
    page.keyboard.press("]")
    assert seen.ask("v.selected") != first
    assert seen.ask("d.node.style[v.nodeIndex.get(v.selected)]") == "captured"
    page.keyboard.press("[")
    assert seen.ask("v.selected") == first
    page.keyboard.press("ArrowDown")
    below = seen.ask("v.selected")
    among = "d.node.{}[v.nodeIndex.get(a)].includes(v.nodeIndex.get(v.selected))"
    assert seen.ask(among.format("readers"), first)
    page.keyboard.press("ArrowUp")
    above = seen.ask("v.selected")
    assert seen.ask(among.format("inputs"), below)
    assert above
    # Wider and wider around it; the rest fades.
    near = seen.ask("v.lit().boxes.size")
    page.keyboard.press(">")
    page.keyboard.press(">")
    assert seen.ask("v.walk.reach") == 3
    assert seen.ask("v.lit().boxes.size") > near
    page.get_by_role("button", name="Fewer edges away").click()
    assert seen.ask("v.walk.reach") == 2
    seen.ask("(v.walk.reach = 1, v.main.focus())")
    # A path between two.
    seen.ask("v.select(d.node.id.find((_, n) => d.node.kind[n] === 'input'))")
    end = seen.ask("d.node.id[d.node.output.indexOf(1)]")
    seen.ask("v.walk.connect(a)", end)
    lit = seen.ask("[...v.lit().boxes]")
    assert len(lit) > 2
    linked = "a.every((b, k) => !k || d.edge.s.some((s, e) => s === a[k - 1] && d.edge.t[e] === b))"
    assert seen.ask(linked, lit)
    # Undo: groups, place and selection.
    seen.ask("v.select(null)")
    before = seen.ask("[v.zoom, v.x, v.y, v.open.length]")
    page.get_by_role("button", name="Close all").click()
    seen.wait("v.open.length === 0")
    seen.ask("v.main.focus()")
    page.keyboard.press("u")
    seen.wait("v.open.length === a", before[3])
    assert seen.ask("[v.zoom, v.x, v.y]") == pytest.approx(before[:3])
    page.keyboard.press("f")
    page.keyboard.press("Control+z")
    assert seen.ask("[v.zoom, v.x, v.y]") == pytest.approx(before[:3])
    page.keyboard.press("?")
    help = page.get_by_role("dialog", name="Keys")
    help.wait_for()
    page.keyboard.press("Escape")
    help.wait_for(state="hidden")


def test_roles_are_an_overlay_beside_every_other_and_closed_groups_say_what_is_captured(view):
    seen = view("joint")
    captured = seen.ask("d.node.id.filter((_, n) => d.node.style[n] === 'captured').length")
    whole = seen.ask("v.captures.get('forward:')")
    assert whole["count"] == captured > 0
    sizes = "d.node.bytes.filter((_, n) => d.node.style[n] === 'captured')"
    assert whole["bytes"] == sum(seen.ask(sizes))
    seen.ask("v.toggleAll(false)")
    drawn = (
        "(() => { const said = [], real = v.ctx.fillText;"
        " v.ctx.fillText = (text, ...at) => { said.push(text); real.call(v.ctx, text, ...at); };"
        " v.fit(); v.draw(); delete v.ctx.fillText; return said; })()"
    )
    assert any(text.startswith(f"{captured} saved · ") for text in seen.ask(drawn))
    seen.ask("v.select('group:forward:')")
    assert f"{captured} saved for the backward" in seen.page.locator(".side").inner_text()
    seen.ask("v.select(null)")
    page = seen.page
    colours = page.get_by_role("combobox", name="Colour by")
    assert colours.locator("option").all_inner_texts()[:2] == ["Forward & backward", "Operators"]
    seen.ask("v.toggleAll(true)")
    captured = seen.ask("d.node.id.filter((_, n) => d.node.role[n] === 'captured')")
    colours.select_option("operators")
    style = "d.box.style[v.index.get(a)]"
    assert seen.ask(style, captured[0]) == "matmul"
    assert seen.ask("d.box.role[v.index.get(a)]", captured[0]) == "captured"
    legend = page.locator(".legend").inner_text()
    for words in ("Operators", "matrix product", "captured by the forward", "backward"):
        assert words in legend
    # The bar on the canvas is the captured's blue on both sides; inside, the operator's colour.
    seen.ask("v.focus(a)", captured[0])
    seen.ask("(v.select(null), v.walk.reach = 1, v.draw())")
    dots = seen.ask(
        "(() => { const i = v.index.get(a), b = d.box, r = v.ratio, y = b.y[i] + b.h[i] / 2;"
        " return [2.5, 9, b.w[i] - 2.5].map(x => [...v.ctx.getImageData("
        "  r * ((b.x[i] + x) * v.zoom + v.x), r * (y * v.zoom + v.y), 1, 1).data].slice(0, 3));"
        "})()",
        captured[0],
    )
    light = palette.STYLES["light"]
    blue = light["captured"].stroke
    rgb = [int(blue[i : i + 2], 16) for i in (1, 3, 5)]
    assert dots[0] == dots[2] == rgb != dots[1]
    # A closed module has its half's bar under any overlay, and the table the colours.
    colours.select_option("bytes")
    seen.ask("v.toggleAll(false)")
    assert seen.ask("d.box.role[v.index.get('group:backward:')]") == "backward"
    assert seen.ask("d.box.role[v.index.get('group:forward:')]") == "forward"
    colours.select_option("")
    page.get_by_role("button", name="Table", exact=True).click()
    cell = page.locator(".sheet .rows .tr").first
    assert cell.locator(".value").inner_text() == "parameter"  # words, sorted downwards
    assert cell.locator(".swatch.pill").count() == 1
    page.get_by_role("columnheader", name="Forward & backward").click()
    assert cell.locator(".value").inner_text() == "backward"


@pytest.mark.exhaustive
def test_fingers_choose_open_drag_zoom_connect_and_undo(view):
    """Touches as the browser gets them from a screen, not events made in the page."""
    seen = view("layer")
    page = seen.page
    screen = page.context.new_cdp_session(page)
    screen.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 5})
    left, top = seen.ask("(r => [r.left, r.top])(v.main.getBoundingClientRect())")

    def touch(kind, *points):
        places = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        screen.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": places})

    def tap(x, y):
        touch("Start", (x, y))
        touch("End")

    def press(name):
        box = page.get_by_role("button", name=name).bounding_box()
        tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    seen.ask("v.fit()")
    x, y = left + 300, top + 300
    was_x, was_y, zoom = seen.ask("[v.x, v.y, v.zoom]")
    touch("Start", (x, y))
    touch("Move", (x + 20, y + 10))
    touch("Move", (x + 60, y + 30))
    touch("End")
    assert seen.ask("[v.x, v.y, v.zoom]") == pytest.approx([was_x + 60, was_y + 30, zoom])
    assert seen.ask("v.selected") is None  # a drag chooses nothing
    touch("Start", (x, y), (x + 100, y))
    touch("Move", (x, y), (x + 150, y))
    touch("Move", (x, y), (x + 200, y))
    touch("End", (x, y))
    touch("End")
    assert seen.ask("v.zoom") == pytest.approx(2 * zoom, rel=0.02)
    assert seen.ask("v.selected") is None
    zoomed = seen.ask("v.zoom")
    touch("Start", (x, y), (x + 100, y))  # a tap with two fingers goes back
    touch("End", (x, y))
    touch("End")
    assert seen.ask("v.zoom") == pytest.approx(zoom) != zoomed
    # A tap chooses, and on a module's mark opens it.
    seen.ask("(v.fit(), v.select(null))")
    softmax = seen.node("nn.softmax")
    tap(*seen.spot(softmax))
    seen.wait("v.selected === a", softmax)
    press("Path to…")
    end = seen.node("nn.layer_norm")
    seen.ask("(v.side.classList.add('hidden'))")
    tap(*seen.spot(end))
    assert seen.ask("v.walk.to") == end
    assert seen.ask("v.selected") == softmax
    assert len(seen.ask("[...v.lit().boxes]")) > 2
    seen.ask("v.select(null)")
    press("Close all")
    seen.wait("v.open.length === 0")
    closed = seen.ask("v.keyOf(v.solid.find(i => d.box.kind[i]))")
    tap(*seen.spot(closed, dx=12))
    seen.wait("v.open.length === 1")
