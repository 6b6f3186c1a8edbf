"""Fixtures for all tests."""

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

gc.disable()  # until the tests are imported, as engines do
# PyTorch's threads sleep while they wait: beside those of other workers, spinning takes a third of
# the processor's time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
FOLDERS = [str(Path(__file__).parent / name) for name in ("support", "support/sessions", "both")]
sys.path[:0] = FOLDERS
# What one of some hundred processes compiled, the next one takes, whatever the environment says.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# The processes that tests start find the sessions that stand in for an engine's.
os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])

# What both engines' tests take from there has assertions that say what they compared.
pytest.register_assert_rewrite(*(p.stem for p in (Path(__file__).parent / "both").rglob("*.py")))

from browser import LONG, OPEN_SIDEBAR, Server, browsing, forget, keeping  # noqa: E402
from relascope.core.memo import Memo  # noqa: E402
from relascope.engine import process  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def own_settings(tmp_path_factory) -> None:
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["RELASCOPE_TOKEN"] = "off"  # what asks for one has tests of its own
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))
    os.environ["RELASCOPE_BUILDS"] = "off"  # each test's code is what is built now
    os.environ["RELASCOPE_ALONE"] = "0"  # tests time small things beside each other
    os.environ["RELASCOPE_RECORDS"] = str(tmp_path_factory.mktemp("records"))
    # Real engines, and all that stand in for one.
    process._servers = Memo(12)


def _emptied(variable: str) -> None:
    for kept in Path(os.environ[variable]).iterdir():
        shutil.rmtree(kept)


@pytest.fixture(autouse=True)
def no_memory(own_settings) -> Iterator[None]:
    """What one test had the page remember, or keep as a session, the next one does not find, nor
    variables of libraries that it imported: in another environment engines import a TVM anew."""
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # by a module's fixture that uses PyTorch
    before = dict(os.environ)
    yield
    for name in [n for n in os.environ if n not in before]:
        if not name.startswith("TVM_"):  # which a TVM in this process reads later
            del os.environ[name]
    os.environ.update(before)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        _emptied(name)


@pytest.fixture
def no_records(own_settings) -> None:
    """What earlier tests tuned is gone; engines that all share go on writing to the same folder."""
    _emptied("RELASCOPE_RECORDS")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """The collector leaves alone what was imported, and looks as rarely as in engines."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_unconfigure() -> None:
    """While Python ends, it would look at all objects several times."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator:
    """A test that skips fails: what it needs is missing, and it must not pass unseen."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    return report


@pytest.fixture(scope="session")
def chromium() -> Iterator:
    """A headless Chromium. Where there is none the test fails: it must not pass unseen."""
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="session")
def kept(chromium) -> Iterator:
    """A context for pages of Streamlit in turn, with a cache that new contexts have not: compiling
    its scripts anew is a third of the work of opening a page."""
    with keeping(chromium) as context:
        yield context


@pytest.fixture(scope="session")
def streamlit_servers(tmp_path_factory) -> Iterator[Callable]:
    """One server for each script and environment that tests ask for, with a memory of its own."""
    servers: dict[tuple, Server] = {}
    with ExitStack() as stack:

        def serve(script: Path, env: dict[str, str] | None = None) -> Server:
            key = (script, tuple(sorted((env or {}).items())))
            if key not in servers:
                folders = ("XDG_CONFIG_HOME", "XDG_DATA_HOME")
                own = {name: str(tmp_path_factory.mktemp("own")) for name in folders} | (env or {})
                servers[key] = stack.enter_context(Server(script, own))
            return servers[key]

        yield serve


def _checked(page) -> None:
    print(page.inner_text("body"))  # which is seen where the test fails
    assert page.problems == []
    assert not page.locator("[data-testid=stException]").count()


def _watched(stack: ExitStack, page):
    """A page that fails the test at its end for what went wrong in it."""
    page.set_default_timeout(LONG)
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    stack.callback(lambda: page.is_closed() or _checked(page))
    return page


@pytest.fixture
def streamlit_page(kept, streamlit_servers) -> Iterator[Callable]:
    """Opens a Streamlit script in a browser: `page = streamlit_page(script, query="a=1")`.

    Keywords: `query`, `width`, `height`, `dark`, `env` (for the server), `sidebar` (open). Errors
    in the browser's console are collected in `page.problems`, which a test leaves empty. The page
    ends with the test, and all that its browser kept but the cache; all tests of this process that
    ask for the same share the server. A test that fails prints what its page and its server said.
    """
    with ExitStack() as stack:

        def start(
            script: Path,
            *,
            query: str = "",
            width: int = 1280,
            height: int = 900,
            dark: bool = False,
            env: dict[str, str] | None = None,
            sidebar: bool = True,
        ):
            server = streamlit_servers(script, env)
            stack.callback(forget, kept, server.url)
            page = _watched(stack, kept.new_page())
            stack.callback(lambda: print(server.said()))
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme="dark" if dark else "light")
            if sidebar and width > 768:
                page.add_init_script(OPEN_SIDEBAR)
            page.goto(f"{server.url}/?{query}")
            return page

        yield start


@pytest.fixture
def graph_page(chromium, tmp_path) -> Iterator[Callable]:
    """Opens a graph as it is handed on, for a third of the work with Streamlit:
    `graph_page("layer")`; keywords: `width`, `dark`. Errors are as those of `streamlit_page`."""
    from graphs import GRAPHS
    from relascope.viz.handed_on.formats import graph_file

    with ExitStack() as stack:

        def start(name: str, *, width: int = 1280, dark: bool = False):
            # Tests ask the viewer in words that they write.
            context = chromium.new_context(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if dark else "light",
                bypass_csp=True,
            )
            stack.callback(context.close)
            page = _watched(stack, context.new_page())
            path = tmp_path / f"{name}.html"
            path.write_bytes(graph_file(".html", GRAPHS[name]()))
            page.goto(path.as_uri())
            return page

        yield start
