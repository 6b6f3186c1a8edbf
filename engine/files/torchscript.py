"""Traces (`.pt`): what their code says is held against what a trace may say, before it is read.

Reading a trace may run code of its own (`__setstate__`), so that is refused by what is written in
the archive. What forward() would run is seen whole only when torch has read the code; it is checked
then, before it runs (`engine.pytorch.flat_trace`, with `engine.files.operators`).
"""

from __future__ import annotations

import re

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.files.archive import MIB, Archive
from relascope.engine.files.operators import allowed
from relascope.engine.files.pickles import skeleton

_WORDS = re.compile(
    r"__[gs]etstate__|__hooks__|f(?<!\wf)(?:rom_file|orward_(?:pre_)?hooks?)\b|r(?<!\wr)pc_\w+"
)
"""What no trace says anywhere, in texts and comments neither. Each way begins with a letter that is
looked for alone, which is many times as fast as a word's edge."""
_SAVED = re.compile(r"\.\s*(save)\s*\(")
_CALLED = re.compile(r"(?<![\w.])(torch|ops)\b(?:\.(\w+))?(?:\.(\w+))?")
_TEXTS = re.compile(r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\#[^\n]*""")
_DEEPEST, _LONGEST = 200, 512 << 10
_PICKLES = ("constants.pkl", "data.pkl")


def check_code(archive: Archive) -> None:
    """Refuse a trace whose code, constants or attributes say what none should.

    Raises:
        EngineError: kind "file".
    """
    members = {name.lower() for name in archive.sizes}
    if not members.issuperset(_PICKLES) or not any(m.startswith("code/") for m in members):
        raise EngineError("file", "This file is not a TorchScript trace.", archive.path.name)
    if "model.json" in members:
        raise archive.refused("model.json", "is of a format that PyTorch left in 2019")
    code = [n for n in archive.sizes if n.lower().endswith(".py")]
    if sum(archive.sizes[n] for n in code) > 64 * MIB:
        raise archive.refused("code/", "has more than 64 MiB of text")
    for name in code:
        _check_text(archive, name, archive.text(name))
    for name in _PICKLES:
        skeleton(archive, name)
    for name in archive.sizes:
        if name.lower().endswith(".debug_pkl"):
            _check_places(archive, name)


def recorded_inputs(archive: Archive) -> tuple[TensorType, ...]:
    """Types of the inputs that a trace was taken with; empty where the file does not tell.

    torch writes them into the archive (the values are not kept) and gives no way to read them.

    Raises:
        EngineError: kind "file"; they are written in another way than torch does.
    """
    if "traced_inputs.pkl" not in archive.sizes:
        return ()
    found, _ = skeleton(archive, "traced_inputs.pkl")
    types = found.get("forward", []) if isinstance(found, dict) else []
    known = isinstance(types, list | tuple) and all(isinstance(t, TensorType) for t in types)
    return tuple(types) if known else ()


def _check_places(archive: Archive, name: str) -> None:
    """torch looks up texts by these numbers, for its messages, and does not check them."""
    made, parts = skeleton(archive, name)
    if not (isinstance(made, tuple) and made[:1] == ("FORMAT_WITH_STRING_TABLE",)):
        return
    for one in parts:
        if type(one) is not list and (type(one) is not tuple or len(one) != 2):
            continue
        numbers = one if type(one) is list else one[:1]
        if not all(0 <= n < len(made[1]) for n in numbers if isinstance(n, int)):
            raise archive.refused(name, "names texts that it does not have")


def _check_text(archive: Archive, name: str, text: str) -> None:
    if "\0" in text:
        raise archive.refused(name, "has a character that ends texts")
    if found := _WORDS.search(text):
        raise archive.refused(name, f"has the word {found[0]}, which no trace has")
    bare = _TEXTS.sub("''", text)
    if found := _SAVED.search(bare):
        raise archive.refused(name, f"calls {found[1]}(), which no trace calls")
    for space, first, second in set(_CALLED.findall(bare)):
        kind = f"aten::{first}" if space == "torch" else f"{first}::{second}"
        if not allowed(kind) and not (space == "torch" and allowed(f"prim::{first}")):
            word = kind if first else space
            raise archive.refused(name, f"uses the operator {word}, which no trace uses")
    _check_nesting(archive, name, text)


def _check_nesting(archive: Archive, name: str, text: str) -> None:
    """torch's parser calls itself for what is nested."""
    depth, since, at = 0, 0, 0
    for found in re.finditer(r"[\[\](){}\n]", text):
        at = found.start()
        if found[0] == "\n":
            if depth <= 0:
                since = at
        else:
            depth += 1 if found[0] in "([{" else -1
        if depth > _DEEPEST:
            raise archive.refused(name, f"nests brackets more than {_DEEPEST} deep")
        if at - since > _LONGEST:
            break
    if max(at, len(text)) - since > _LONGEST:
        raise archive.refused(name, f"has a statement of more than {_LONGEST >> 10} KiB")
    indent = max((len(s) for s in re.findall(r"^ +", text, re.MULTILINE)), default=0)
    if indent > 2 * _DEEPEST:
        raise archive.refused(name, f"nests blocks more than {_DEEPEST} deep")
