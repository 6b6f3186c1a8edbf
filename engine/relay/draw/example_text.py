"""Relay's text of a small program, as the documentation shows it."""

import re
from collections.abc import Iterable
from typing import Any

from relascope.engine.protocol.results import FunctionText
from relascope.engine.relay.draw.to_text import named_devices
from relascope.passes.relay.ir.program import RelayProgram

_COMMENT = re.compile(r" ?/\*.*?\*/", re.DOTALL)  # types and origins
_UNSET = re.compile(r", \w+=None\b")  # an attribute that is not set
_RESULT = re.compile(r"\) -> .* \{$")  # the type of what a function returns
_LET = re.compile(r"^(let %\w+): .*? = ")
_COUNTED = re.compile(r"^let %(\w+)_(\d+) = ", re.MULTILINE)  # TVM counts on for as long as it runs
_FUNCTION = re.compile(r"(fn \()(.*)(\) \{)$")


def example_text(program: RelayProgram) -> tuple[FunctionText, ...]:
    """The functions of a program, "main" last, without types and attributes that are not set."""
    functions = {str(v.name_hint): f for v, f in program.mod.functions.items()}
    names = sorted(functions, key=lambda name: (name == "main", name))
    return tuple(_one(name, functions[name]) for name in names)


def _one(name: str, function: Any) -> FunctionText:
    text = named_devices(str(function.astext(show_meta_data=False)).partition("\n")[2])
    lines = [_line(line) for line in _COMMENT.sub("", text).splitlines() if line.strip()]
    lines = [lines[0], *_counted_anew(line[2:] for line in lines[1:-1]), lines[-1]]
    head = lines[0].replace("fn (", f"def @{name}(", 1)
    return FunctionText(name, head, tuple(lines[1:-1]), "}")


def _counted_anew(lines: Iterable[str]) -> list[str]:
    """Lines whose let variables have numbers from 0 on."""
    text = "\n".join(_LET.sub(r"\1 = ", line) for line in lines)
    numbers: dict[tuple[str, str], int] = {}
    for match in _COUNTED.finditer(text):
        numbers[match[1], match[2]] = sum(base == match[1] for base, _ in numbers)
    for (base, old), new in numbers.items():
        text = re.sub(rf"%{base}_{old}\b", f"%{base}#{new}", text)
    return text.replace("#", "_").splitlines()


def _line(line: str) -> str:
    line = _UNSET.sub("", line.rstrip())
    line = _RESULT.sub(") {", line)
    return _FUNCTION.sub(lambda m: m[1] + ", ".join(map(_untyped, _arguments(m[2]))) + m[3], line)


def _arguments(text: str) -> list[str]:
    """A function's arguments and attributes, each with its type."""
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def _untyped(argument: str) -> str:
    return argument.partition(":")[0] if argument.startswith("%") else argument
