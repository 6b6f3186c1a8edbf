"""Relay's own text of a program, without what a person who reads it does not need."""

from __future__ import annotations

import re

from passes.relay.program import RelayProgram

_SPAN = re.compile(r" ?span=.*?(?= \*/)")  # where a node came from, which the graph tells
_EMPTY = re.compile(r" ?/\* ?\*/")
_ARGUMENT = re.compile(r"(%[^\s:]+: [^/]+?) /\* ty=[^/]*? \*/(?=, |\))")  # its type stands before
_END = re.compile(r"^\} /\* ty=fn .*$", re.MULTILINE)  # the type of the whole, which its head says
_FOOT = re.compile(r"\n/\* For debugging purposes the metadata.*", re.DOTALL)


def to_text(program: RelayProgram) -> str:
    """The text of "main": types in comments, constants by number, one argument a line."""
    text = str(program.main.astext(show_meta_data=False)).partition("\n")[2]
    text = _EMPTY.sub("", _SPAN.sub("", _FOOT.sub("\n", text)))
    head, brace, body = text.partition("{\n")
    head = _ARGUMENT.sub(r"\1", head).replace("fn (", "fn (\n  ", 1).replace(", %", ",\n  %")
    return f"{head}{brace}{_END.sub('}', body)}".rstrip() + "\n"
