"""What notebooks keep of their outputs, in a browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser import LONG, watched


@contextmanager
def drawn_outputs(chromium: Any, path: Path) -> Iterator[list[Any]]:
    """The frames of a page's outputs once all are drawn; nothing is asked of a network, and nothing
    goes wrong. The system's own theme is light, and nothing overrides what a page says of its."""
    with watched(chromium, ("file:", "about:", "blob:", "data:")) as new_page:
        page = new_page(offline=True, color_scheme="null")
        page.goto(path.as_uri())
        frames = []
        for one in page.locator("iframe").all():
            one.scroll_into_view_if_needed()
            frame = one.content_frame
            frame.locator(".rs[data-ready]").first.wait_for(timeout=LONG)
            frames.append(frame)
        yield frames


def theme_of(frame: Any) -> str:
    """The theme that a frame's picture is drawn in, once its ground is that theme's; a frame learns
    of its page's scheme when it is drawn already."""
    picture, ground = frame.locator(".picture").first, frame.locator("relascope-graph")
    for _ in range(LONG // 50):
        theme = picture.evaluate("e => e.viewer.theme.name")
        colour = ground.evaluate("e => getComputedStyle(e).backgroundColor")
        bright = sum(int(part) for part in colour.strip("rgb()").split(",")) > 3 * 128
        if bright == (theme == "light"):
            return str(theme)
        picture.page.wait_for_timeout(50)
    raise AssertionError(f"a {theme} picture on {colour}")
