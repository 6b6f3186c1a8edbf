"""Recordings as they are read; needs no TVM.

`read(path)` gives a `Recording`: `passes` in the order in which they began, each with what every
function was before and after, by the hash of its content, and `text(hash)` and `graph(hash)` to
look at that. Contents stay in the file until they are asked for, so it must stay as it is.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.recorder.writing import VERSION

_LONGEST = 256 << 20  # bytes of one content
_MOST = 20_000_000  # entries of all modules' functions together
_WRONG = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, zlib.error)


@dataclass
class PassRun:
    """One run of a pass.

    Args:
        number: counted from 0, in the order in which they began.
        depth: how many passes it ran inside of.
        before, after: the hash of each function's content, by the function's name; None where they
            are not known: at the level "names", or after a pass that did not end.
        seconds: None of one that was under way when the recording ended.
        own_seconds: without those of passes inside.
        failure: what it raised; None where it did not fail.
    """

    number: int
    depth: int
    name: str
    opt_level: int
    before: Mapping[str, str] | None
    after: Mapping[str, str] | None = None
    seconds: float | None = None
    own_seconds: float | None = None
    failure: str | None = None

    @property
    def touched(self) -> tuple[str, ...] | None:
        """Names of functions that it changed, made or removed; None where that is not known."""
        before, after = self.before, self.after
        if before is None or after is None:
            return None
        if before is after:
            return ()
        return tuple(n for n in {**before, **after} if before.get(n) != after.get(n))


@dataclass
class Recording:
    """What a file holds.

    Args:
        path: of the file.
        about: "tvm", "python", "arguments", "level", "process".
        whole: whether no line was cut short.
    """

    path: Path
    about: dict[str, Any]
    passes: list[PassRun] = field(default_factory=list)
    whole: bool = True
    _places: dict[tuple[str, str], int] = field(default_factory=dict)
    _modules: list[dict[str, str]] = field(default_factory=list)
    _entries: int = 0

    def text(self, name: str) -> str:
        """The text of a content.

        Args:
            name: its hash.

        Raises:
            KeyError: there is none.
            EngineError: kind "file"; it cannot be read any more.
        """
        return self._content("text", name).decode()

    def graph(self, name: str) -> Graph | None:
        """The graph of a content, read anew each time; None where the recording has none of it:
        at a lower level, or of what is no graph, such as loops.

        Args, Raises: as of `text`.
        """
        if ("graph", name) not in self._places:
            return None
        try:
            return Graph.from_json(json.loads(self._content("graph", name)))
        except _WRONG as wrong:
            raise self._damaged() from wrong

    def _content(self, kind: str, name: str) -> bytes:
        place = self._places[kind, name]
        try:
            with self.path.open("rb") as file:
                file.seek(place)
                fields = json.loads(file.readline())
            inflate = zlib.decompressobj()
            data = inflate.decompress(base64.b64decode(fields["zlib"]), _LONGEST)
            if fields[kind] != name or not inflate.eof:
                raise ValueError("another content")
        except (OSError, *_WRONG) as wrong:
            raise self._damaged() from wrong
        return data

    def _damaged(self) -> EngineError:
        name = self.path.name
        message = f"{name} is damaged, or has changed since it was opened."
        return EngineError("file", message, name, "Open it again, or record the compile again.")


def read(path: Path) -> Recording:
    """A recording from its file.

    Raises:
        EngineError: kind "file"; it is none, or damaged before its last line.
    """
    found: Recording | None = None
    number = 0
    try:
        with path.open("rb") as file:
            place = 0
            for line in file:
                number += 1
                if not line.endswith(b"\n"):
                    if found is not None:
                        found.whole = False
                    break
                fields = json.loads(line)
                if found is None:
                    found = _begun(fields, path)
                else:
                    _add(found, fields, place)
                place += len(line)
    except OSError as wrong:
        message = f"{path.name} cannot be read: {wrong.strerror}."
        raise EngineError("file", message, path.name) from wrong
    except _WRONG as wrong:
        message = f"{path.name} is no recording, or damaged in line {number}."
        raise EngineError("file", message, path.name, "Record the compile again.") from wrong
    if found is None:
        raise EngineError("file", f"{path.name} is no recording.", path.name)
    _own_times(found.passes)
    return found


def _begun(fields: dict[str, Any], path: Path) -> Recording:
    version = fields["relascope_recording"]
    if version != VERSION:
        message = (
            f"{path.name} is a recording of version {version}; this relascope reads {VERSION}."
        )
        raise EngineError("file", message, path.name, "Open it with the relascope that wrote it.")
    return Recording(path, {k: v for k, v in fields.items() if k != "relascope_recording"})


def _add(found: Recording, fields: dict[str, Any], place: int) -> None:
    for kind in ("text", "graph"):
        if kind in fields:
            found._places[kind, _str(fields[kind])] = place
            return
    if "begin" in fields:
        if fields["begin"] != len(found.passes):
            raise ValueError("a pass is missing")
        about = _count(fields["depth"]), _str(fields["name"]), int(fields["opt_level"])
        found.passes.append(PassRun(len(found.passes), *about, _module(found, fields)))
    else:
        run = found.passes[_count(fields["end"] if "end" in fields else fields["failed"])]
        run.seconds = float(fields["seconds"])
        if not math.isfinite(run.seconds):
            raise ValueError("a time is no number")
        if "failed" in fields:
            run.failure = _str(fields["message"])
        else:
            run.after = _module(found, fields)


def _module(found: Recording, fields: dict[str, Any]) -> dict[str, str] | None:
    given = fields.get("module")
    if given is None:
        return None
    if not isinstance(given, list):
        return found._modules[_count(given)]
    of, new, gone = given
    functions = {} if of is None else dict(found._modules[_count(of)])
    for name in gone:
        del functions[name]
    for name, content in new.items():
        if ("text", content) not in found._places:
            raise ValueError("a content is missing")
        functions[name] = content
    found._entries += len(functions)
    if found._entries > _MOST:
        raise ValueError("too large")
    found._modules.append(functions)
    return functions


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value)} for a text")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} for a number")
    return value


def _own_times(passes: list[PassRun]) -> None:
    for run in passes:
        run.own_seconds = run.seconds
    around: list[PassRun] = []
    for run in passes:
        run.depth = min(run.depth, len(around))  # of several threads, passes stand in between
        del around[run.depth :]
        if around and run.seconds is not None and around[-1].own_seconds is not None:
            around[-1].own_seconds -= run.seconds
        around.append(run)
