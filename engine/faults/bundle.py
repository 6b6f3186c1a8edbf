"""The source files that a module needs to run where relascope is not installed."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from relascope.core.graph import reached
from relascope.core.place import FOLDERS

_PACKAGE = "relascope"
_EMPTY = b'"""A part of relascope, for a report."""\n'


def sources(modules: Iterable[str], files: Iterable[Path] = ()) -> dict[str, bytes]:
    """Files of some of our modules and of all our modules that they import, found without running
    any. Imports of further `files` are followed, too; these are not in the result. Paths have
    slashes, and begin with the package's name."""
    todo = list(modules)
    for file in files:
        todo += _imported(ast.parse(file.read_text(encoding="utf-8")))
    found: dict[str, bytes] = {}
    while todo:
        first, *parts = todo.pop().split(".")
        if first != _PACKAGE:
            continue
        while parts and _file(parts) is None:  # a name inside the module before it
            parts.pop()
        source = _file(parts) if parts else None
        if source is None:
            continue
        path = "/".join((first, *parts))
        path += "/__init__.py" if source.name == "__init__.py" else ".py"
        if path not in found:
            found[path] = source.read_bytes()
            todo += _imported(ast.parse(found[path]))
    if f"{_PACKAGE}/passes/catalogue/__init__.py" in found:  # it reads all passes, and runs none
        for root in FOLDERS:
            for file in root.glob("passes/rel*/**/*.py"):
                path = f"{_PACKAGE}/{file.relative_to(root).as_posix()}"
                found.setdefault(path, file.read_bytes())
    for path in list(found):
        for folder in list(Path(path).parents)[:-1]:
            # Nothing needs its content, and its imports would add the rest of the package.
            found.setdefault(f"{folder.as_posix()}/__init__.py", _EMPTY)
    return dict(sorted(found.items()))


def siblings(files: Iterable[Path]) -> list[Path]:
    """Some files, and the files beside them that they import, directly or not."""

    def beside(file: Path) -> list[Path]:
        names = _imported(ast.parse(file.read_text(encoding="utf-8")))
        return [p for n in names if (p := file.parent / f"{n.partition('.')[0]}.py").is_file()]

    return list(reached(files, beside))


def _file(parts: list[str]) -> Path | None:
    for root in FOLDERS:
        place = root.joinpath(*parts)
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file
    return None


def _imported(tree: ast.Module) -> Iterator[str]:
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield from (f"{module}.{alias.name}" for alias in node.names)
        todo.extend(ast.iter_child_nodes(node))
