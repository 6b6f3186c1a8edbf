"""The app in a browser, with the engines without a TVM (pages/app_page.py)."""

from functools import partial

from browser import LONG
from place import PAGES

PAGE = PAGES / "app_page.py"
GATED, TOKEN = PAGES / "gated_page.py", "of-a-test"
"""The viewer alone behind the gate, which asks for the token; `?graph=NAME` says of what."""

# The part of the window whose topmost thing is a picture of the graph.
SHARE = (
    "() => { let all = 0, picture = 0;"
    " for (let x = 4; x < innerWidth; x += 8) for (let y = 4; y < innerHeight; y += 8) {"
    "  let e = document.elementFromPoint(x, y);"
    "  for (let i; e?.shadowRoot && (i = e.shadowRoot.elementFromPoint(x, y)) && i !== e;) e = i;"
    "  all++; picture += e?.tagName === 'CANVAS'; }"
    " return picture / all; }"
)

# All elements, those of a page that is handed on among them, which has a root of its own.
_ROOTS = "[document, document.querySelector('relascope-graph')?.shadowRoot]"
_ALL = f"{_ROOTS}.flatMap(root => [...root?.querySelectorAll('*') ?? []])"
_SHOWN = "v => v?.drawing && v.root.getBoundingClientRect().width"
_VIEWS = f"{_ALL}.map(e => e.viewer).filter({_SHOWN})"


def viewer_page(streamlit_page, query):
    """The viewer alone on a page of Streamlit, by the link that lets a browser in."""
    env = {"RELASCOPE_TOKEN": TOKEN}
    return streamlit_page(GATED, query=f"token={TOKEN}&{query}", env=env)


def ask(page, side, code, argument=None):
    """JavaScript of one of the two views, on its viewer `v` and its drawing `d`."""
    return page.evaluate(
        f"([side, code, a]) => {{ const v = {_VIEWS}[side];"
        " return new Function('v', 'd', 'a', 'return ' + code)(v, v.drawing, a); }",
        [side, code, argument],
    )


def wait(page, side, code, argument=None):
    page.wait_for_function(
        f"([side, code, a]) => {{ const v = {_VIEWS}[side];"
        " return v && new Function('v', 'd', 'a', 'return ' + code)(v, v.drawing, a); }",
        arg=[side, code, argument],
        timeout=LONG,
        polling=50,
    )


def spot(page, side, box, dx=0.5, dy=None):
    """A place in a box on the screen; `dx` and `dy` in pixels of the drawing, or the middle."""
    return ask(
        page,
        side,
        "(([id, dx, dy]) => { const i = v.index.get(id), s = v.main.getBoundingClientRect();"
        " const wx = d.box.x[i] + (dx === 0.5 ? d.box.w[i] / 2 : dx);"
        " const wy = d.box.y[i] + (dy === null ? d.box.h[i] / 2 : dy);"
        " return [s.left + wx * v.zoom + v.x, s.top + wy * v.zoom + v.y]; })(a)",
        [box, dx, dy],
    )


def click(page, side, box):
    """Click on a box where it is drawn."""
    ask(page, side, "v.main.scrollIntoView({block: 'center'})")
    page.mouse.click(*spot(page, side, box))


_STILL = (
    "table => new Promise(done => { let last = '', frames = 0; const look = () => {"
    " const { x, y, width, height } = table.getBoundingClientRect();"
    " const now = [x, y, width, height].join();"
    " frames = now === last ? frames + 1 : 0; last = now;"
    " if (frames < 10) requestAnimationFrame(look); else done(); }; look(); })"
)


def choose_row(page, row):
    """Click on the mark before a row of the first table, counted from 0, once it stands still."""
    settle(page)
    table = page.locator("[data-testid=stDataFrame]").first
    table.scroll_into_view_if_needed()
    table.get_by_test_id(f"glide-cell-1-{row}").wait_for(state="attached", timeout=LONG)
    table.evaluate(_STILL)
    box = table.bounding_box()
    page.mouse.click(box["x"] + 18, box["y"] + 36 * (1 + row) + 16)


# Unlike a wait of the test's own, it ends behind whatever the page itself was to do until then.
MOMENT = "ms => new Promise(done => setTimeout(done, ms))"


def settle(page):
    for _ in range(2):
        page.wait_for_function(
            "() => document.querySelector('[data-testid=stApp]')"
            "?.dataset.testScriptState === 'notRunning'"
            " && !document.querySelector('[data-testid=stProgress]')",
            timeout=LONG,
            polling=100,  # for each frame, a page that waits draws all the time
        )
        page.evaluate(MOMENT, 300)


def click_named(page, name, role="button", **how):
    """Click on what has this name, and wait until the page stands still."""
    page.get_by_role(role, name=name, **how).click()
    settle(page)


class View:
    """The viewer on a page of its own: where its boxes are on the screen, and what it shows."""

    def __init__(self, page) -> None:
        self.page = page
        page.locator(".rs[data-ready]").wait_for()
        page.wait_for_timeout(100)
        self.ask, self.wait, self.spot = (partial(f, page, 0) for f in (ask, wait, spot))

    def click(self, box_id: str, **place) -> None:
        self.page.mouse.click(*self.spot(box_id, **place))

    def node(self, op: str) -> str:
        return self.ask("d.node.id[d.node.title.indexOf(a)]", op)
