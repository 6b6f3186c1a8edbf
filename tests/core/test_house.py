"""The house: rooms of a size to look over, and code that the formatter lays out."""

import ast
import os
import re
from collections import Counter, defaultdict
from configparser import ConfigParser
from pathlib import Path

from place import ROOT
from relascope.viz.drawing.palette import PAGE


def files():
    """The checkout's files by their paths, without what tools leave there."""
    for folder, folders, names in os.walk(ROOT):
        made = {"__pycache__", "out", "build", "dist"}
        own = (f for f in folders if f not in made and not f.endswith(".egg-info"))
        folders[:] = [f for f in own if f[0] != "."]
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
    "bench": 3566,
    "commands": 3251,
    "core": 1400,
    "engine": 41199,
    "passes": 11622,
    "recorder": 1411,
    "samples": 542,
    "viz": 23721,
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


def test_a_function_that_is_imported_alone_has_a_name_of_its_own():
    """Others are read with their module: `store.read`. Twins of the two IRs may share a name."""
    defined, imported = defaultdict(set), defaultdict(set)
    for path in files():
        if path.suffix == ".py" and path.parts[0] in LINES and path.parts[0] != "bench":
            module = ".".join(["relascope", *path.with_suffix("").parts])
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and node.col_offset == 0:
                    defined[node.name].add(module)
                elif isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        imported[alias.name].add(node.module)
    alone = {name: modules & imported[name] for name, modules in defined.items()}
    irs = re.compile(r"(engine|passes)\.(relay|relax)\..*")
    assert {n: m for n, m in alone.items() if len({irs.sub(r"\1", x) for x in m}) > 1} == {}


def public_names(body, where=""):
    """Names of classes, functions, their parameters and attributes; private ones do not count."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node.name
            if not node.name.startswith("_"):
                yield from public_names(node.body, node.name)
        elif isinstance(node, ast.FunctionDef):
            yield node.name
            if where:
                stored = (n for n in ast.walk(node) if isinstance(n, ast.Attribute))
                yield from (n.attr for n in stored if isinstance(n.ctx, ast.Store))
            if not node.name.startswith("_") or node.name == "__init__":
                some = node.args
                every = *some.posonlyargs, *some.args, some.vararg, *some.kwonlyargs, some.kwarg
                yield from (a.arg for a in every if a is not None)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))


OF_USERS = {"said"}
"""A field of the document of `passes --test`."""


def test_public_names_avoid_the_words_that_the_glossary_bans():
    glossary = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rule = r"names do not contain (.*), and none is only (.*?):"
    texts = re.search(rule, glossary, re.S).groups()
    inside, alone = (set(re.findall(r"`(\w+)`", text)) for text in texts)
    assert inside and alone
    found = set()
    for path in files():
        if path.suffix == ".py" and path.parts[0] in LINES:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            names = {n for n in public_names(tree.body) if not n.startswith("_")} - OF_USERS
            wrong = (n for n in names if inside & set(n.lower().split("_")) or n.lower() in alone)
            found |= {f"{path}: {n}" for n in wrong}
    assert found == set()


def test_what_scripts_import_is_there():
    """mypy reads the package alone: after a rename there, a script ends as it starts."""
    lacking = set()
    for path in (p for p in files() if p.suffix == ".py" and p.parts[0] in ("bench", "docs")):
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("relascope."):
                place = ROOT.joinpath(*node.module.split(".")[1:])
                file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
                text = file.read_text(encoding="utf-8")
                for name in (a.name for a in node.names):
                    inside = (place / name).is_dir() or (place / f"{name}.py").exists()
                    defined = rf"^(class |def |from .* import .*\b)?{name}\b"
                    if not inside and not re.search(defined, text, re.M):
                        lacking.add(f"{path}: {node.module}.{name}")
    assert lacking == set()


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
