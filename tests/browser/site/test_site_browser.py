"""The static viewer and its element, in Chromium: from disk, and from a server of files."""

import base64
import functools
import json
import threading
import zlib
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import ANY

import pytest

from browser import LONG, watched
from crafted.recorded import recorded
from engines import shared_fake
from graphs import transformer
from relascope.commands.main import main
from relascope.recorder import reading
from relascope.viz.handed_on import sheet
from relascope.viz.handed_on.formats import graph_file
from relascope.viz.handed_on.notebook import show
from relascope.viz.handed_on.parts import graph_tab
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.sessions import replay
from relascope.viz.sessions.state import ModelChoice, Session

pytestmark = pytest.mark.browser

NASTY = "</script><img src=x onerror=alert(1)>"
PICTURES = "[...e.shadowRoot.querySelectorAll('.picture')]"
DRAWN = f"e => {PICTURES}.map(p => p.viewer?.drawing?.node.id.length ?? 0)[0] ?? 0"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing is printed."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that `viewer` wrote, with files to show beside it, and its address."""
    folder = tmp_path_factory.mktemp("site")
    assert main(["viewer", "-o", str(folder)]) == 0
    assert sum(p.stat().st_size for p in folder.iterdir()) < 1e6
    (folder / "graph.json").write_bytes(graph_file(".json", transformer(2)))
    show(recorded(folder / "run.rsc", passes=40)).save(folder / "run.html")
    replay.write(folder / "session.zip", Session(), None)
    named = Sheet(NASTY, {"model": NASTY}, [NASTY])
    graph_tab(named, transformer(1))
    named.tab("more", NASTY, [sheet.sections.table(NASTY, [{NASTY: NASTY}]), sheet.sentence(NASTY)])
    (folder / "names.html").write_text(named.html())
    (folder / "names.page.json").write_text(json.dumps(named.data()))
    (folder / "older.page.json").write_text(json.dumps(named.data() | {"relascope_page": 99}))
    (folder / "cut.page.json").write_text(json.dumps(named.data())[:-40])
    element = '<script src="relascope.js"></script><input><relascope-graph src="graph.json"'
    (folder / "part.html").write_text(f"<!doctype html>{element} style='width:600px'>")
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def opened(chromium):
    """A page at an address, of which nothing may go wrong, nor leave its own site."""
    own = ("file:", "blob:", "data:", "http://127.0.0.1:")
    with watched(chromium, own, console=False) as new_page:

        def go(address: str, **how):
            page = new_page(viewport={"width": 1000, "height": 800}, **how)
            page.goto(address)
            page.locator("relascope-graph[data-ready]").wait_for(timeout=LONG)
            return page

        yield go


def nodes(page) -> int:
    """How many nodes are drawn, once any are."""
    host = page.locator("relascope-graph")
    host.locator(".picture").first.wait_for(timeout=LONG)
    for _ in range(LONG // 50):
        if count := host.evaluate(DRAWN):
            return count
        page.wait_for_timeout(50)
    raise AssertionError("nothing is drawn")


def chosen(page, path) -> None:
    """Choose a file, as if it was dropped."""
    page.locator("relascope-graph").evaluate("e => delete e.dataset.ready")
    page.locator("input[type=file]").first.set_input_files(path)
    page.locator("relascope-graph[data-ready]").wait_for(timeout=LONG)


def only_text(page) -> None:
    """What has nasty names shows them, and nothing else is made of them."""
    assert page.locator("h1").inner_text() == NASTY
    page.get_by_role("tab").nth(1).click()
    assert NASTY in page.locator(".panel:not([hidden])").inner_text()
    assert page.locator("img").count() == 0


def test_files_of_its_own_site_are_shown_by_their_address(site, opened):
    _, address = site
    page = opened(f"{address}/index.html?url=graph.json")
    assert nodes(page) > 10
    assert "The whole result is in graph.json" in page.locator("footer").inner_text()
    page = opened(f"{address}/index.html?url=run.html#tab=times")
    page.locator("#panel-times tbody tr").first.wait_for(timeout=LONG)
    page.get_by_role("tab").first.click()
    page.locator(".row .title").first.wait_for(timeout=LONG)
    assert "url=run.html" in page.url


def test_from_disk_files_are_chosen_one_after_the_other(site, opened, tmp_path):
    folder, _ = site
    page = opened((folder / "index.html").as_uri(), offline=True)
    assert "Drop a file here" in page.locator("main").inner_text()
    chosen(page, folder / "graph.json")
    assert nodes(page) > 10
    run = (folder / "run.rsc").read_bytes()
    session, data = ((folder / n).read_bytes() for n in ("session.zip", "names.page.json"))
    paged = run + b'{"blob": "page", ' + data[1:] + b"\n"
    for name, content in {
        "cut.rsc": run[:3000],
        "cut-in-page.rsc": paged[:-40],
        "cut.zip": session[:-30],
        "older.rsc": paged.replace(b'"relascope_page": 2', b'"relascope_page": 99'),
        "damaged.rsc": paged.replace(b'"blocks": {', b'"blocks": {"x": <img src=x>'),
    }.items():
        (tmp_path / name).write_bytes(content)
    for name, said in {
        "cut.page.json": "truncated",
        "cut.rsc": "This recording is truncated.",
        "cut-in-page.rsc": "This recording is truncated.",
        "cut.zip": "This session's file is truncated.",
        "damaged.rsc": "not one of relascope's",
        "older.rsc": "version 99",
        "older.page.json": "version 99",
        "run.rsc": "relascope open FILE -o run.rsc",
        "session.zip": "relascope replay FILE -o session.zip",
    }.items():
        chosen(page, tmp_path / name if (tmp_path / name).exists() else folder / name)
        assert said in page.locator(".told").inner_text()
        assert nodes(page) > 10, "what was shown before stays"
    (tmp_path / "names.rsc").write_bytes(paged)
    for path in (folder / "names.page.json", tmp_path / "names.rsc"):
        chosen(page, path)
        assert page.locator(".told").inner_text() == ""
        only_text(page)
    only_text(opened((folder / "names.html").as_uri(), offline=True))
    chosen(page, folder / "run.html")
    page.locator(".row .title").first.wait_for(timeout=LONG)


def test_a_recording_and_a_session_are_shown_as_their_pages_are(site, opened, tmp_path):
    folder, _ = site
    run = folder / "run.rsc"
    page = opened((folder / "run.html").as_uri(), offline=True)
    page.locator(".board[data-step]").wait_for(timeout=LONG)
    passes = page.locator("main").inner_text()
    for output in (tmp_path / "with.rsc", tmp_path / "twice.rsc"):
        assert main(["open", str(run), "-o", str(output)]) == 0
        run = output
    with_page = (tmp_path / "with.rsc").read_bytes()
    assert with_page.startswith((folder / "run.rsc").read_bytes())
    assert (tmp_path / "twice.rsc").read_bytes() == with_page
    assert reading.read(run) == replace(reading.read(folder / "run.rsc"), path=run, _places=ANY), (
        "what reads a recording does not mind its page"
    )
    page = opened((folder / "index.html").as_uri(), offline=True)
    chosen(page, tmp_path / "with.rsc")
    page.locator(".board[data-step]").wait_for(timeout=LONG)
    assert page.locator("main").inner_text() == passes
    session = Session(model=ModelChoice("mlp", training=True))
    replay.write(tmp_path / "session.zip", session, None)
    arguments = ["replay", str(tmp_path / "session.zip"), "-o", str(tmp_path / "with.zip")]
    assert main(arguments, shared_fake) == 0
    assert replay.read(tmp_path / "with.zip", tmp_path) == (session, "")
    chosen(page, tmp_path / "with.zip")
    assert page.get_by_role("tab").all_inner_texts() == ["Graph", "Passes", "Gradient & cut"]
    assert nodes(page) > 3


def test_what_is_too_large_unpacked_is_refused_in_words(site, opened, tmp_path):
    folder, _ = site
    data = json.loads((folder / "names.page.json").read_text())
    data["blocks"]["0"] = base64.b64encode(zlib.compress(b" " * (5 << 20))).decode()
    (tmp_path / "graph.page.json").write_text(json.dumps(data))
    data["blocks"]["index"] = data["blocks"]["0"]
    (tmp_path / "index.page.json").write_text(json.dumps(data))
    viewer = (folder / "index.html").read_text()
    assert viewer.count("MOST = 2 ** 29;") == 1
    smaller = tmp_path / "index.html"  # has less room, which is filled sooner
    smaller.write_text(viewer.replace("MOST = 2 ** 29;", "MOST = 2 ** 22;"))
    page = opened(smaller.as_uri(), offline=True, bypass_csp=True)
    refused = "This file takes more than 4.0 MiB unpacked, and is not shown."
    chosen(page, tmp_path / "index.page.json")
    assert page.locator(".told").inner_text() == refused
    chosen(page, tmp_path / "graph.page.json")
    page.locator("main").get_by_text(refused).wait_for(timeout=LONG)


def test_what_is_of_another_site_is_not_asked_for(site, opened):
    folder, address = site
    page = opened(f"{address}/index.html?url=http://relascope.invalid/graph.json")
    assert "is another site" in page.locator(".told").inner_text()
    page = opened(f"{(folder / 'index.html').as_uri()}?url=graph.json")
    assert "python -m http.server" in page.locator(".told").inner_text()
    page = opened(f"{address}/index.html?url=missing.json")
    assert "answers 404" in page.locator(".told").inner_text()


def test_an_element_of_another_page_leaves_its_address_and_keys_alone(site, opened):
    _, address = site
    page = opened(f"{address}/part.html")
    assert nodes(page) > 10
    page.locator("input").first.fill("?")
    assert page.locator("input").first.input_value() == "?"
    assert page.url == f"{address}/part.html"
    assert page.locator("relascope-graph h1").is_hidden()
