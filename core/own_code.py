"""The user's own Python files: their functions, and the values these give a graph's nodes.

`--overlay FILE` names a file. Each of its public functions whose one argument is `graph` takes a
`core.graph.Graph` and returns numbers or texts by node id."""

import ast
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, lines_of, refusing
from relascope.core.graph import Graph
from relascope.core.identity import flat

NodeValues = dict[str, float | str]

_HINT = "For example: def width(graph): return {node.id: len(node.inputs) for node in graph}"


def text_of(file: str) -> str:
    """A file's text. Raises ValueError if it cannot be opened, or is not text."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as wrong:
        raise ValueError(f"{file} cannot be opened: {wrong.strerror}") from wrong
    except UnicodeError as wrong:
        raise ValueError(f"{file} is not Python: {wrong}") from wrong


def parsed(file: str, text: str) -> ast.Module:
    """A file's text, parsed and not run. Raises ValueError if it is not Python."""
    try:
        return ast.parse(text, Path(file).name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
        raise ValueError(f"{file} is not Python: {wrong or 'it is nested too deeply'}") from wrong


def functions_of(tree: ast.Module, argument: str) -> list[ast.FunctionDef]:
    """The public functions whose only required argument has this name."""

    def needs(given: ast.arguments) -> tuple[str, int]:
        names = [a.arg for a in (*given.posonlyargs, *given.args)]
        needed = len(names) - len(given.defaults) + given.kw_defaults.count(None)
        return names[0] if names else "", needed

    functions = (f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name[0] != "_")
    return [f for f in functions if needs(f.args) == (argument, 1)]


def overlays_in(file: str, text: str) -> list[str]:
    """The names of a text's functions of `graph`. Raises EngineError (kind "usage") without any."""
    with refusing("usage", "Cannot read the overlay: {}.", file, _HINT):
        found = [f.name for f in functions_of(parsed(file, text), "graph")]
        if not found:
            raise ValueError(f"{file} has no public function whose argument is `graph`")
    return found


def run_overlays(graph: Graph, file: str, text: str) -> dict[str, NodeValues]:
    """Run a file, and each of its functions on the graph; return their values by their names.
    Raises EngineError of kind "usage" as `overlays_in` and `node_values` do, or if the file
    raises."""
    names = overlays_in(file, text)
    space: dict[str, Any] = {"__name__": Path(file).stem, "__file__": file}
    try:
        exec(compile(text, file, "exec"), space)
    except (Exception, SystemExit) as wrong:
        raise _raised(Path(file).name, wrong, file) from wrong
    return {name: node_values(graph, space[name], file) for name in names}


def node_values(graph: Graph, function: Callable[[Graph], Any], file: str = "") -> NodeValues:
    """The values that a function of a file gives the graph's nodes; None is no value. Raises
    EngineError of kind "usage" if it raises, or returns anything except numbers and texts by ids
    of the graph."""
    name = getattr(function, "__name__", type(function).__name__)
    where = ", ".join(filter(None, (file, name)))
    try:
        given = function(graph)
    except (Exception, SystemExit) as wrong:
        raise _raised(name, wrong, file) from wrong
    with refusing("usage", f"The values that {name} returned are not shown: {{}}.", where, _HINT):
        if not isinstance(given, Mapping):
            raise ValueError(f"{type(given).__name__} is not a dict of values by node id")
        known = {node.id for node in flat(graph)}
        if unknown := [str(key)[:100] for key in given if key not in known]:
            raise ValueError(f"{len(unknown)} keys are not node ids, such as {unknown[0]!r}")
        return {str(k): _value(k, v) for k, v in given.items() if v is not None}


def _value(key: str, value: Any) -> float | str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Real):
        with suppress(OverflowError):
            return value if isinstance(value, int) and abs(value) < 1 << 53 else float(value)
    raise ValueError(f"the node {key} has {type(value).__name__}, not a float or a text")


def _raised(what: str, wrong: BaseException, file: str) -> EngineError:
    lines = [f.lineno for f in traceback.extract_tb(wrong.__traceback__) if f.filename == file]
    said = f"{what} raised {type(wrong).__name__}: {lines_of(wrong)[0]}"
    hint = _HINT if "unhashable" in said else ""  # a node, and not its id, as a key
    return EngineError("usage", said, f"{file}, line {lines[-1]}" if lines else file, hint)
