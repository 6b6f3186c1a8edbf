"""The house: rooms of a size to look over, and code that the formatter lays out."""

import ast
import os
import re
from collections import Counter
from configparser import ConfigParser
from pathlib import Path

from place import ROOT
from relascope.viz.drawing.palette import PAGE


def files():
    """The checkout's files by their paths, without what tools leave there."""
    for folder, folders, names in os.walk(ROOT):
        made = {"__pycache__", "out", "build", "dist"}
        folders[:] = [
            f for f in folders if f[0] != "." and f not in made and not f.endswith(".egg-info")
        ]
        yield from (Path(folder, n).relative_to(ROOT) for n in names if not n.endswith(".pyc"))


def test_no_folder_holds_more_than_fifteen_files():
    counts = Counter(str(p.parent) for p in files())
    counts.pop(".")  # what tools and people look for at the top
    assert {folder: n for folder, n in counts.items() if n > 15} == {}


def test_few_places_are_laid_out_by_hand():
    skip = re.compile(r"# fmt: (?:skip|off)\b")
    texts = [(ROOT / p).read_text(encoding="utf-8") for p in files() if p.suffix == ".py"]
    assert sum(len(skip.findall(t)) for t in texts) <= 60


LINES = {
    "bench": 3659,
    "commands": 3368,
    "core": 1307,
    "engine": 41607,
    "passes": 11607,
    "recorder": 1460,
    "samples": 553,
    "viz": 25142,
}
"""The most lines of code in a folder. A commit that raises a number says why."""


def test_each_folder_keeps_to_its_lines():
    counts = Counter()
    for path in files():
        if path.suffix in (".py", ".js", ".css", ".html") and path.parts[0] in LINES:
            counts[path.parts[0]] += len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert {folder: n for folder, n in counts.items() if n > LINES[folder]} == {}


TWINS = {
    "Block": "samples name their modules as the models' papers do",
    "Compiled": "what runs a built program, declared once and in both engines",
    "Converter": "both engines' frontends",
    "Importer": "both engines' importers of ONNX",
    "Profiled": "a profiled build, declared once and in both engines",
    "Recorder": "both gradients' records of what they made",
    "Run": "both engines' runs of small programs",
    "Tensors": "both IRs' tensors of examples",
    "_Passes": "both engines' passes of a profiled build",
    "_Shared": "both engines' walks over a program",
    "_Walk": "both engines' walks over a program",
}
"""Names of classes that more than one file defines, with the reason."""


def test_a_class_has_a_name_of_its_own():
    names = Counter()
    for path in files():
        if path.suffix == ".py" and path.parts[0] in LINES and path.parts[0] != "bench":
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            names.update(n.name for n in tree.body if isinstance(n, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == set(TWINS)


DOORS = {"passes/catalogue", "relascope", "samples"}
"""Packages that others use by what their `__init__.py` defines."""


def test_code_of_weight_stands_in_files_that_have_names():
    texts = {p: (ROOT / p).read_text(encoding="utf-8") for p in files() if p.name == "__init__.py"}
    long = {str(p.parent) for p, t in texts.items() if len(t.splitlines()) > 40}
    assert {f for f in long if not f.startswith("tests/")} == DOORS


def test_all_colours_stand_in_the_palette():
    code = [p for p in files() if p.suffix in (".py", ".js", ".css") and p.parts[0] == "viz"]
    texts = {str(p): (ROOT / p).read_text(encoding="utf-8") for p in code}
    colour = re.compile(r"(?<![&\w])#[0-9a-fA-F]{6}\b")
    assert {p for p, text in texts.items() if colour.search(text)} == {"viz/drawing/palette.py"}
    theme = ConfigParser()
    theme.optionxform = lambda name: re.sub("[A-Z]", lambda m: "-" + m[0].lower(), name)
    theme.read(ROOT / ".streamlit" / "config.toml", encoding="utf-8")
    for name, colours in PAGE.items():
        chosen = {k: v.strip('"') for k, v in theme[f"theme.{name}"].items() if v[0] == '"'}
        assert chosen and chosen.items() <= colours.items()
