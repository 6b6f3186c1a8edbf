"""Streamlit pages in a real browser, for tests."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from place import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
ARGUMENTS += ["--in-process-gpu"]  # what has no GPU draws with less work where it stands
LONG = 120_000  # ms; only what hangs takes so long, on a busy machine too


@contextmanager
def browsing() -> "Iterator[Browser]":
    """A headless Chromium; FileNotFoundError where there is none."""
    from playwright.sync_api import sync_playwright

    if not CHROMIUM.exists():
        raise FileNotFoundError(f"{CHROMIUM} is missing; install it with: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def keeping(browser: "Browser") -> "Iterator[BrowserContext]":
    """A context of a Chromium beside `browser`, with a cache for as long as it is entered."""
    with tempfile.TemporaryDirectory() as folder:
        start = {"executable_path": str(CHROMIUM), "args": ARGUMENTS}
        context = browser.browser_type.launch_persistent_context(folder, **start)
        yield context
        context.close()


@contextmanager
def watched(
    browser: "Browser", own: tuple[str, ...] = ("file:", "blob:", "data:"), console: bool = True
) -> Iterator[Callable[..., "Page"]]:
    """Makes pages in contexts of their own, with options of `new_context`. At the end nothing has
    gone wrong in any, by the `console` too, and nothing was asked but of what begins as `own`."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []
    asked: list[str] = []

    def new_page(**how: Any) -> "Page":
        contexts.append(browser.new_context(**how))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())
        if console:
            page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        return page

    yield new_page
    for context in contexts:
        context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(own)] == []


def forget(context: "BrowserContext", url: str) -> None:
    """Close what pages were opened in a context of `keeping`, and clear all that those of a server
    left there, but for the cache."""
    blank, *pages = context.pages
    for page in pages:
        page.close()
    context.clear_cookies()
    context.clear_permissions()
    storage = context.new_cdp_session(blank)
    what = {"origin": url, "storageTypes": "local_storage,indexeddb"}
    storage.send("Storage.clearDataForOrigin", what)
    storage.detach()


OPEN_SIDEBAR = "try { localStorage.setItem('stSidebarCollapsed-', 'false'); } catch {}"
"""A script before a page's own: its sidebar, which is folded at first, stands open."""


class Server:
    """One Streamlit server with one page; use it as a context manager, it ends with the block."""

    def __init__(self, script: Path, env: dict[str, str] | None = None) -> None:
        self.script = script
        self.env = {"RELASCOPE_TOKEN": "off", **os.environ, **(env or {})}
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Server":
        options = {
            "server.port": self.port,
            "server.address": "127.0.0.1",
            "server.headless": "true",
            "server.fileWatcherType": "none",
            "browser.gatherUsageStats": "false",
        }
        command = [sys.executable, "-m", "streamlit", "run", str(self.script)]
        command += [part for k, v in options.items() for part in (f"--{k}", str(v))]
        self.start(command, cwd=ROOT, env=self.env)
        return self

    def start(self, command: list[str], **where: Any) -> None:
        """Run the command that serves, and wait until it answers."""
        # Not a pipe, which blocks where nobody reads it.
        self.log = tempfile.TemporaryFile()  # noqa: SIM115, open until `stop`
        where |= {"stdout": self.log, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(command, **where)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def said(self) -> str:
        """The last that it wrote to its terminal."""
        return os.pread(self.log.fileno(), 1 << 24, 0)[-20_000:].decode(errors="replace")

    def _wait(self, seconds: float = LONG / 1000) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                code = self.process.returncode
                raise RuntimeError(f"streamlit ended with {code}:\n{self.said()}")
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except urllib.error.HTTPError:  # it asks for a token, so it is there
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise RuntimeError(f"streamlit did not answer within {seconds:.0f} s")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
