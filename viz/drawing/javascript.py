"""The viewer's JavaScript as one script, and running it in V8.

The layout is in JavaScript, so that the browser opens and closes groups at once. To get positions
without a browser, V8 runs the same modules, which do not use the DOM.
"""

import atexit
import json
import re
import threading
from functools import cache
from pathlib import Path
from typing import Any

from py_mini_racer import JSFunction, MiniRacer

from relascope.viz.drawing import palette

VIEWER = Path(__file__).parents[1] / "component" / "viewer"
_IMPORT = re.compile(r'^import (?:\{([^}]*)\}|(\w+)) from "(\.{1,2}/[\w/.]+)\.js";\n', re.M)
_EXPORT = re.compile(r"^export (default )?", re.M)
_lock = threading.Lock()


def script(module: str) -> str:
    """A module of the viewer, by its path there without ".js", and all its imports as one script,
    as Streamlit and V8 need it. A module becomes a function that returns its exports, and imports
    become constants. A default export is imported by its own name."""
    first = (VIEWER / module).resolve()
    texts = _texts(first, {})
    wanted: dict[Path, dict[str, None]] = {at: {} for at in texts}
    for at, text in texts.items():
        for names, default, other in _IMPORT.findall(text):
            names = (names or default).replace(",", " ").split()
            wanted[(at.parent / other).resolve()] |= dict.fromkeys(names)
    numbers = {at: f"module{i}" for i, at in enumerate(texts)}

    def standing(at: Path) -> str:
        def constant(match: re.Match[str]) -> str:
            names, number = match[1] or match[2], numbers[(at.parent / match[3]).resolve()]
            return f"const {{ {names} }} = {number};\n"

        text = _IMPORT.sub(constant, texts[at])
        return _EXPORT.sub(lambda found: found[0] if found[1] and at == first else "", text)

    def enclosed(at: Path) -> str:
        names = ", ".join(wanted[at])
        return f"const {numbers[at]} = (() => {{\n{standing(at)}return {{ {names} }};\n}})();\n"

    return "".join(standing(at) if at == first else enclosed(at) for at in texts)


@cache
def element() -> str:
    """JavaScript that defines the element `<relascope-graph>`, with its templates and styles."""
    templates = {}
    for name in "page/page", "viewer", "step_list", "text_diff":
        files = (VIEWER.parent / f"{name}.{end}" for end in ("css", "html"))
        style, html = (file.read_text("utf-8") for file in files)
        colours = palette.page_css(":host") if name == "page/page" else ""
        templates[Path(name).name] = f"<style>{colours}{style}</style>{html}"
    code = script("../page/element")
    text = f'(() => {{\n"use strict";\nconst TEMPLATES = {json.dumps(templates)};\n{code}}})();\n'
    if "</script" in text.lower() or "<!--" in text:
        raise AssertionError("the script would end early")
    # The page around it may have any encoding.
    return re.sub("[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)


def _texts(module: Path, known: dict[Path, str]) -> dict[Path, str]:
    """The texts of a module and all its imports, each after its own imports."""
    if module not in known:
        text = module.with_suffix(".js").read_text("utf-8")
        for *_, other in _IMPORT.findall(text):
            _texts((module.parent / other).resolve(), known)
        known[module] = text
    return known


def call(module: str, function: str, argument: Any) -> Any:
    """A function's result for an argument, both JSON. Raises JSEvalException for what it threw."""
    text = json.dumps(argument, separators=(",", ":"), default=str)
    with _lock:  # an engine does one thing at a time
        return json.loads(str(_function(module, function)(text)))


@cache
def _engine() -> MiniRacer:
    racer = MiniRacer()
    atexit.register(racer.close)  # else its thread keeps the process from ending
    return racer


@cache
def _function(module: str, function: str) -> JSFunction:
    made = _engine().eval(
        f"(() => {{\n{script(module)}"
        f"return (text) => JSON.stringify({function}(JSON.parse(text)));\n}})()"
    )
    assert isinstance(made, JSFunction)
    return made
