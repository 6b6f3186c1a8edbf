"""Relay's own text of a program, without what its readers do not need."""

import re
from typing import Any

import tvm

from relascope.passes.relay.ir.program import RelayProgram

_SPAN = re.compile(r" ?span=.*?(?= \*/)")  # where a node came from, which the graph tells
_EMPTY = re.compile(r" ?/\* ?\*/")
_ARGUMENT = re.compile(r"(%[^\s:]+: [^/]+?) /\* ty=[^/]*? \*/(?=, |\))")  # its type comes first
_END = re.compile(r"^\} /\* ty=fn .*$", re.MULTILINE)  # the type of the whole, which its head says
_FOOT = re.compile(r"\n/\* For debugging purposes the metadata.*", re.DOTALL)
_DEVICE = re.compile(r"VirtualDevice\(device_type=(\d+)")


def to_text(program: RelayProgram) -> str:
    """The text of every function, "main" first: types in comments, constants by number, devices by
    name, one argument a line."""
    functions = {str(v.name_hint): f for v, f in program.mod.functions.items()}
    names = sorted(functions, key=lambda name: (name != "main", name))
    heads = {n: "fn (" if len(names) == 1 else f"def @{n}(" for n in names}
    return "\n".join(_one(functions[name], heads[name]) for name in names)


def _one(function: Any, head: str) -> str:
    text = str(function.astext(show_meta_data=False)).partition("\n")[2]
    text = named_devices(_EMPTY.sub("", _SPAN.sub("", _FOOT.sub("\n", text))))
    first, brace, body = text.partition("{\n")
    first = _ARGUMENT.sub(r"\1", first).replace("fn (", f"{head}\n  ", 1).replace(", %", ",\n  %")
    return f"{first}{brace}{_END.sub('}', body)}".rstrip() + "\n"


def named_devices(text: str) -> str:
    """A text with devices by their names, without the targets compiled for."""
    parts, end = [], 0
    for match in _DEVICE.finditer(text):
        if match.start() < end:  # the host of one that was written already
            continue
        parts += [text[end : match.start()], device_name(int(match[1]))]
        end, depth = match.end(), 1
        while depth:
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
    return "".join([*parts, text[end:]])


def device_name(kind: int) -> str:
    """TVM's name of a kind of device: "cpu", "cuda"."""
    return str(tvm.runtime.Device.MASK2STR.get(kind, kind))
