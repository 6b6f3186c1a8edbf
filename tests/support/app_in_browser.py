"""The app in a browser, with the engines without a TVM (pages/app_page.py)."""

from browser import LONG
from place import PAGES

PAGE = PAGES / "app_page.py"

_VIEWS = (
    "[...document.querySelectorAll('*')].map(e => e.shadowRoot?.relascopeViewer)"
    ".filter(v => v?.drawing && v.root.getBoundingClientRect().width)"
)


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
    )


def click(page, side, box, **place):
    """Click on a box where it is drawn; `header` clicks a group's title."""
    ask(page, side, "v.main.scrollIntoView({block: 'center'})")
    x, y = ask(
        page,
        side,
        "(() => { const i = v.index.get(a[0]), b = d.box, r = v.main.getBoundingClientRect();"
        " const y = a[1] ? 12 : b.h[i] / 2;"
        " return [r.left + v.x + (b.x[i] + b.w[i] / 2) * v.zoom,"
        " r.top + v.y + (b.y[i] + y) * v.zoom]; })()",
        [box, place.get("header", False)],
    )
    page.mouse.click(x, y)


_STILL = (
    "table => new Promise(done => { let last = '', frames = 0; const look = () => {"
    " const { x, y, width, height } = table.getBoundingClientRect();"
    " const now = [x, y, width, height].join();"
    " frames = now === last ? frames + 1 : 0; last = now;"
    " if (frames < 10) requestAnimationFrame(look); else done(); }; look(); })"
)


def choose_row(page, row):
    """Click on the mark before a row of the first table, counted from 0.

    Before the table is drawn and stands still, a click finds nothing there, or another row.
    """
    settle(page)
    table = page.locator("[data-testid=stDataFrame]").first
    table.scroll_into_view_if_needed()
    table.get_by_test_id(f"glide-cell-1-{row}").wait_for(state="attached", timeout=LONG)
    table.evaluate(_STILL)
    box = table.bounding_box()
    page.mouse.click(box["x"] + 18, box["y"] + 36 * (1 + row) + 16)


def settle(page):
    for _ in range(2):
        page.wait_for_function(
            "() => document.querySelector('[data-testid=stApp]')"
            "?.dataset.testScriptState === 'notRunning'"
            " && !document.querySelector('[data-testid=stProgress]')",
            timeout=LONG,
        )
        page.wait_for_timeout(300)
