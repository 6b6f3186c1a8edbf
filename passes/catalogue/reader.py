"""Reads the passes of a Python file without running it, because the app imports no TVM.

A pass is a function of a program. The docstring's first paragraph says what it does. Further
arguments, with defaults, are its parameters; annotation or default gives the kind,
`Literal[...]` the choices. In the docstring, `name: text` describes a parameter, `Before:` the
condition under which the pass does something, and `After:` the condition afterwards; more deeply
indented lines continue a text. `@listed(...)` has the rest."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.catalogue.parameters import Parameter, Value

_KINDS = {"bool": "switch", "int": "whole number", "float": "number", "str": "text"}
_DECLARED = re.compile(
    r'^(?:@listed\(.*?""".*?"""|\w+ = tvm_pass\(.*?\)$)', re.DOTALL | re.MULTILINE
)
"""A declaration, of a function up to its docstring: parsing everything would take longer."""
_TITLE = re.compile(r"( *)(\w+): +(.+)")


def listed_in(folder: Path, ir: str, package: str) -> Iterator[PassInfo]:
    """The passes of an IR: functions under `@listed`, and names that `tvm_pass` makes."""
    for file in sorted(folder.rglob("*.py")):
        inside = ".".join((package, *file.relative_to(folder).with_suffix("").parts))
        for found in _DECLARED.finditer(file.read_text(encoding="utf-8")):
            (statement,) = ast.parse(found[0]).body
            match statement:
                case ast.FunctionDef(decorator_list=[ast.Call() as said]):
                    yield of_function(statement, ir, inside, **_given(said, "title", "origin"))
                case ast.Assign([ast.Name(name)], ast.Call() as said):
                    rest = _given(said, "title", "summary")
                    yield PassInfo(name, ir, origin="TVM", function=f"{inside}:{name}", **rest)


def _given(call: ast.Call, *names: str) -> dict[str, Any]:
    """Arguments by name; TVM's name for a TVM object."""
    pairs = [*zip(names, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
    return {
        name: value.attr if isinstance(value, ast.Attribute) else ast.literal_eval(value)
        for name, value in pairs
    }


def of_function(
    function: ast.FunctionDef,
    ir: str,
    module: str,
    title: str,
    origin: str,
    least: Mapping[str, float] | None = None,
    **rest: Any,
) -> PassInfo:
    """The entry of a function of `module`; see `listed` for the rest."""
    said = ast.get_docstring(function) or "A pass of yours."
    sections = _sections(said)
    return PassInfo(
        function.name,
        ir,
        title,
        " ".join(said.partition("\n\n")[0].splitlines()),
        origin,
        f"{module}:{function.name}",
        parameters=tuple(_parameters(function, sections, least or {})),
        before=sections.get("Before", ""),
        after=sections.get("After", ""),
        **rest,
    )


def _sections(text: str) -> dict[str, str]:
    """The text after each `name:`, with its continuation lines."""
    found: dict[str, str] = {}
    name, margin = "", 0
    for line in text.splitlines():
        title = _TITLE.fullmatch(line)
        deeper = len(line) - len(line.lstrip()) > margin
        if name and line.strip() and deeper:
            found[name] += f" {line.strip()}"
        elif title:
            name, margin = title[2], len(title[1])
            found[name] = title[3]
        else:
            name = ""
    return found


def _parameters(
    function: ast.FunctionDef, about: Mapping[str, str], least: Mapping[str, float]
) -> Iterator[Parameter]:
    """The parameters that a function's signature and docstring declare."""
    given = function.args
    named = given.args[-len(given.defaults) :] if given.defaults else []
    pairs = zip([*named, *given.kwonlyargs], [*given.defaults, *given.kw_defaults], strict=False)
    for argument, default in pairs:
        name, kind = argument.arg, argument.annotation
        value = default.value if isinstance(default, ast.Constant) else None
        plain = value if isinstance(value, str | int | float) else None
        yield Parameter(
            name, _kind(kind, plain), plain, about.get(name, ""), _choices(kind), least.get(name)
        )


def _kind(annotation: ast.expr | None, default: Value) -> str:
    """What a parameter's values are, by its annotation (the first type of a union) or default."""
    first = annotation
    while isinstance(first, ast.BinOp):
        first = first.left
    name = first.id if isinstance(first, ast.Name) else type(default).__name__
    return _KINDS.get(name, "text")


def _choices(annotation: ast.expr | None) -> tuple[str, ...]:
    """The strings of `Literal["a", "b"]`."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=values)):
            return tuple(str(v.value) for v in values if isinstance(v, ast.Constant))
    return ()
