"""The source files that a module needs, so that it runs where relascope is not."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from relascope.core.place import FOLDERS, FRONT


def sources(modules: Iterable[str], files: Iterable[Path] = ()) -> dict[str, bytes]:
    """The files of modules of ours and of all of ours that they import, found without running any.

    Args:
        modules: dotted names.
        files: others whose imports are followed, too; they are not among the result.

    Returns:
        Contents by path, which begins with the package's name, with slashes.
    """
    todo = list(modules)
    for file in files:
        todo += _imported(ast.parse(file.read_text(encoding="utf-8")))
    found: dict[str, bytes] = {}
    while todo:
        name = todo.pop()
        parts = name.split(".")
        if parts[0] != "relascope":
            continue
        for count in range(1, len(parts) + 1):
            source = _file(parts[1:count])
            if source is None:  # a name inside the module before it
                break
            place = "/".join(parts[:count])
            path = f"{place}/{source.name}" if source.name == "__init__.py" else f"{place}.py"
            if path not in found:
                found[path] = source.read_bytes()
                todo += _imported(ast.parse(found[path]))
    return dict(sorted(found.items()))


def siblings(files: Iterable[Path]) -> list[Path]:
    """The files beside some files that these import, and those that they import in turn."""
    todo = list(files)
    found = dict.fromkeys(todo)
    while todo:
        file = todo.pop()
        for name in _imported(ast.parse(file.read_text(encoding="utf-8"))):
            beside = file.parent / f"{name.partition('.')[0]}.py"
            if beside not in found and beside.is_file():
                found[beside] = None
                todo.append(beside)
    return list(found)


def _file(parts: list[str]) -> Path | None:
    if not parts:
        return FRONT
    for root in FOLDERS:
        place = root.joinpath(*parts)
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file
    return None


def _imported(tree: ast.Module) -> Iterator[str]:
    """Names of what a file imports, and of what may be a module in it; not what is for types."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
        todo.extend(ast.iter_child_nodes(node))
