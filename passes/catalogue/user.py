"""A user's own passes, from Python files that are named when relascope starts.

`--pass-file` or the environment variable `VARIABLE`, which engines inherit, names a file; the page
never does. Its public functions of one argument `program` are passes from and to
`passes.program.Program`, read by `passes.catalogue.reader`. Functions `before_NAME` and
`after_NAME`, or longer, are examples of the pass `NAME`. `IR = "relay"` (or "relax") at the top
limits them to an IR."""

import ast
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from relascope.core.own_code import functions_of, parsed, text_of
from relascope.passes import catalogue
from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.catalogue.reader import of_function

VARIABLE = "RELASCOPE_PASS_FILES"
"""Names files of passes, and folders of them, separated as the system separates paths."""

IRS = ("relay", "relax")

_BEFORE, _AFTER = "before_", "after_"


def name_files(files: Sequence[str]) -> None:
    """Name files for this process and its children, and enter their passes. Raises ValueError where
    a file cannot be read as passes, and says why."""
    paths = [str(Path(f).resolve()) for f in files]
    before = os.environ.get(VARIABLE, "").split(os.pathsep)
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(filter(None, [*before, *paths])))
    enter_named()


def enter_named() -> None:
    """Enter the passes of all named files into the catalogue. Raises ValueError if a file cannot
    be read as passes, and says why."""
    named = filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    for file in (f for n in named for f in _files(n)):
        for entry in read(file):
            key = entry.ir, entry.name
            known = catalogue.CATALOGUE.get(key)
            if known is not None and known.function != entry.function:
                raise ValueError(f"{file} has a pass {entry.name!r}, but so has {known.origin}")
            catalogue.CATALOGUE[key] = entry


def _files(named: str) -> list[str]:
    """A file; or the Python files of a folder in order, except those that begin with "_"."""
    if not Path(named).is_dir():
        return [named]
    found = sorted(str(f) for f in Path(named).glob("[!_]*.py"))
    if not found:
        raise ValueError(f"the folder {named} has no Python file")
    return found


def read(file: str) -> tuple[PassInfo, ...]:
    """The passes in a file, found without running it. Raises ValueError if it cannot be opened,
    is no Python, or has no pass; the message says which."""
    tree = parsed(file, text_of(file))
    irs = tuple(_irs(tree)) or IRS
    if not set(irs) <= set(IRS):
        raise ValueError(f"{file} has IR = {irs[0]!r}; known: {', '.join(IRS)}")
    found = tuple(
        of_function(f, ir, file, f.name, Path(file).name)
        for f in functions_of(tree, "program")
        for ir in irs
        if re.fullmatch("[a-z][a-z0-9_]*", f.name)  # which a pipeline's text can hold
    )
    if not found:
        raise ValueError(f"{file} has no pass: no public function whose argument is `program`")
    return found


def _irs(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="IR")], value=ast.Constant(value=str(ir))):
                yield ir


def examples(entry: PassInfo) -> dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]]:
    """By example name, the functions that make the program before the pass and, if the file has
    one, the expected one after it. For an engine's process alone."""
    if not entry.own_file:
        return {}
    mine = [p.name for p in catalogue.CATALOGUE.values() if p.own_file == entry.own_file]
    functions, found = vars(entry.module()), {}
    for name, function in functions.items():
        rest = name.removeprefix(_BEFORE)
        if rest == name or not callable(function):
            continue
        whose = [n for n in mine if rest == n or rest.startswith(f"{n}_")]
        if max(whose, key=len, default="") == entry.name:
            found[rest] = function, functions.get(f"{_AFTER}{rest}")
    return found
