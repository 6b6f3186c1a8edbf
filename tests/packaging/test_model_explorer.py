"""Model Explorer itself opens what is written for it; it is installed for this test alone."""

import json
import subprocess
import sys
import urllib.parse

import pytest

from browser import LONG, Server
from graphs import transformer
from relascope.viz.drawing.modules import fold_constants
from relascope.viz.handed_on.formats import graph_file

VERSION = "0.1.34"
pytestmark = [pytest.mark.browser, pytest.mark.exhaustive]


def test_model_explorer_opens_the_file(tmp_path, chromium):
    graph = transformer(2)
    path = tmp_path / "model.explorer.json"
    path.write_bytes(graph_file(".explorer.json", graph))
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, f"ai-edge-model-explorer=={VERSION}"], check=True)
    server = Server(path)
    command = [str(place / "bin" / "model-explorer"), str(path), "--no_open_in_browser"]
    server.start([*command, "--host", "127.0.0.1", "--port", str(server.port)])
    try:
        models = json.dumps({"models": [{"url": str(path)}]})
        page = chromium.new_page()
        page.goto(f"{server.url}/?data={urllib.parse.quote(models)}")
        count = len(fold_constants(graph))
        page.get_by_text("op node count").wait_for(timeout=LONG)
        assert f"{count} nodes" in page.locator("body").inner_text()
        page.close()
    finally:
        server.stop()
