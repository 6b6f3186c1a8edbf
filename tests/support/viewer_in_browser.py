"""The viewer on a page of its own (pages/graph_page.py): what a test asks of it."""

from browser import LONG
from place import PAGES

PAGE = PAGES / "graph_page.py"


class View:
    """The viewer on a page: where its boxes are on the screen, and what it shows."""

    def __init__(self, page) -> None:
        self.page = page
        self.root = page.locator(".rs")
        page.locator(".rs[data-ready]").wait_for()
        page.wait_for_timeout(100)

    def ask(self, code: str, argument=None):
        return self.root.evaluate(
            "(root, a) => { const v = root.getRootNode().relascopeViewer, d = v.drawing; "
            f"return {code}; }}",
            argument,
        )

    def spot(self, box_id: str, dx: float = 0.5, dy: float | None = None) -> tuple[float, float]:
        """A place in a box on the screen; `dx` and `dy` in pixels of the drawing, or the middle."""
        x, y = self.ask(
            "(([id, dx, dy]) => { const i = v.index.get(id), s = v.main.getBoundingClientRect();"
            " const wx = d.box.x[i] + (dx === 0.5 ? d.box.w[i] / 2 : dx);"
            " const wy = d.box.y[i] + (dy === null ? d.box.h[i] / 2 : dy);"
            " return [s.left + wx * v.zoom + v.x, s.top + wy * v.zoom + v.y]; })(a)",
            [box_id, dx, dy],
        )
        return x, y

    def click(self, box_id: str, **place) -> None:
        self.page.mouse.click(*self.spot(box_id, **place))

    def node(self, op: str) -> str:
        return self.ask("d.node.id[d.node.title.indexOf(a)]", op)

    def wait(self, code: str, argument=None) -> None:
        self.page.wait_for_function(
            "([code, a]) => { for (const e of document.querySelectorAll('*')) {"
            " const v = e.shadowRoot?.relascopeViewer;"
            " if (!v?.drawing) continue;"
            " return new Function('v', 'd', 'a', 'return ' + code)(v, v.drawing, a);"
            "} return false; }",
            arg=[code, argument],
            timeout=LONG,
        )
