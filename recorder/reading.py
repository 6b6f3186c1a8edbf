"""Reads recordings; needs no TVM.

Contents stay in the file until requested, so the file must not change."""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, reporting
from relascope.core.graph import Graph, TensorType
from relascope.recorder.writing import VERSION

_LONGEST = {"text": 64 << 20, "graph": 64 << 20}  # bytes of one content
_LONGEST_LINE = 512 << 20  # bytes, of the file
_LONGEST_JSON = 256 << 20  # of a module, and of a constant in it
_LONGEST_MODULE = 2 << 30  # of a module with all its constants, repeats counted
_MOST_PASSES, _DEEPEST = 100_000, 200  # passes, and passes inside one another
_MOST = 5_000_000  # entries of all modules' functions together, and of passes' changes
_LONGEST_TIME = 1e9  # s
_WRONG = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, zlib.error)


@dataclass(frozen=True)
class Context:
    """A `tvm.transform.PassContext`, as far as it can be read; `config` has the set options, as
    texts."""

    opt_level: int
    required: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Code:
    """Code generated from a module: the number of the generation in `Recording.passes`, TVM's name
    of the language ("llvm", "cuda", "c"), and the hash of its text."""

    run: int
    language: str
    text: str


@dataclass
class PassRun:
    """One run of a pass, or of the generation of code.

    Args:
        index: in `Recording.passes`, in the order in which they began.
        depth: how many passes enclose it, in its thread.
        opt_level: of the pass: the least level at which TVM runs it.
        before, after: the hash of each function's content, by the function's name; None where
            unknown: at the level "names", or after a pass that did not end.
        seconds: None if it was under way when the recording ended.
        own_seconds: without those of passes inside.
        failure: the error that it raised; None where it did not fail.
        kind: "pass", or "codegen" for the generation of code from loops, which has no `after`.
        required: names of the passes that it requires before it.
        context: TVM's context in which it ran; None where unknown.
        thread: 0 for the thread whose passes come first, then 1, and so on.
        at: seconds since the recording began, without the recording's own; None where unknown."""

    index: int
    depth: int
    name: str
    opt_level: int
    before: Mapping[str, str] | None
    after: Mapping[str, str] | None = None
    seconds: float | None = None
    own_seconds: float | None = None
    failure: str | None = None
    kind: str = "pass"
    required: tuple[str, ...] = ()
    context: Context | None = None
    thread: int = 0
    at: float | None = None

    @property
    def number(self) -> int:
        """Its number for people, who count from 1."""
        return self.index + 1

    @property
    def touched(self) -> tuple[str, ...] | None:
        """Names of functions that it changed, added or removed; None where unknown."""
        before, after = self.before, self.after
        if before is None or after is None:
            return None
        if before is after:
            return ()
        return tuple(n for n in {**before, **after} if before.get(n) != after.get(n))


@dataclass
class Recording:
    """The content of a file. `about` has "tvm", "python", "arguments", "level", "process", and for
    a copy of the process (a fork) "parent". `kernels` is generated code, in its order. `whole` says
    whether all lines are complete; `stopped` why the recording ended before the compile did, such
    as a full disk, or "". Methods that take the hash of a content raise KeyError if there is none,
    and EngineError of kind "file" if it cannot be read any more."""

    path: Path
    about: dict[str, Any]
    passes: list[PassRun] = field(default_factory=list)
    kernels: list[Code] = field(default_factory=list)
    whole: bool = True
    stopped: str = ""
    _places: dict[tuple[str, str], int] = field(default_factory=dict)
    _modules: list[dict[str, str]] = field(default_factory=list)
    _numbers: dict[int, list[int | None]] = field(default_factory=dict)
    _contexts: dict[int, Context] = field(default_factory=dict)
    _entries: int = 0

    @property
    def has_page(self) -> bool:
        """Whether the file also has what a page shows of it."""
        return ("blob", "page") in self._places

    def text(self, name: str) -> str:
        """The text of a content."""
        return self._inflated("text", name)

    def constants(self, name: str) -> list[tuple[TensorType, str]]:
        """The types of a content's constants, each with a hash of its bytes."""
        with self._again():
            given = self._fields("text", name).get("constants", ())
            return [(TensorType(tuple(shape), _str(d)), _str(h)) for d, shape, h in given]

    def graph(self, name: str) -> Graph | None:
        """The graph of a content, read again each time; None where the recording has none: at a
        lower level, for loops, or where it could not be drawn (`no_graph` says why). Functions that
        it calls are drawn as in the first module that had this content."""
        if not self.has_graph(name):
            return None
        with self._again():
            return Graph.from_json(json.loads(self._inflated("graph", name)))

    def has_graph(self, name: str) -> bool:
        """Whether the recording has the graph of a content; does not read it."""
        return ("graph", name) in self._places and "why" not in self._fields("graph", name)

    def graph_size(self, name: str) -> int:
        """About how many characters the graph of a content has as JSON; 0 where it has none."""
        return len(self._inflated("graph", name)) if self.has_graph(name) else 0

    def no_graph(self, name: str) -> str:
        """Why a content has no graph; "" where it has one, or no reason is known."""
        if ("graph", name) not in self._places:
            return ""
        return str(self._fields("graph", name).get("why", ""))

    def module(self, index: int, after: bool) -> str | None:
        """TVM's own JSON of the module before or after a pass, for `tvm.ir.load_json` of the same
        TVM; None where the recording has none: at a lower level, or where the pass did not end.
        `index` is the pass's. Raises IndexError where there is no such pass, and EngineError of
        kind "file" where the module could not be saved, or cannot be read any more."""
        module = self.module_number(index, after)
        if module is None or ("json", str(module)) not in self._places:
            return None
        why = self._fields("json", str(module)).get("why")
        if why is not None:
            message = f"TVM could not save this module: {why}"
            raise EngineError("file", message, self.passes[index].name)
        with self._again():
            whole = self._with_blobs(json.loads(self._inflated("json", str(module))), [0])
        return json.dumps(whole, ensure_ascii=False)

    def functions(self, module: int) -> Mapping[str, str]:
        """The hash of each function's content in a module, by its number."""
        return self._modules[module]

    def module_number(self, index: int, after: bool) -> int | None:
        """The number of the module before or after a pass; equal numbers are the same module.
        Raises IndexError where there is no such pass."""
        self.passes[index]
        return self._numbers.get(index, [None, None])[after]

    def _with_blobs(self, value: Any, taken: list[int]) -> Any:
        """JSON with the constants in their places; `taken` counts their bytes."""
        if isinstance(value, dict):
            if set(value) == {"$blob"}:
                blob = self._inflated("blob", value["$blob"])
                taken[0] += len(blob)
                if taken[0] > _LONGEST_MODULE:
                    message = "A module with its constants is larger than 2 GiB, and is not read."
                    raise EngineError("file", message, self.path.name, "Record a smaller model.")
                return blob
            return {k: self._with_blobs(v, taken) for k, v in value.items()}
        if isinstance(value, list):
            return [self._with_blobs(v, taken) for v in value]
        return value

    def _fields(self, kind: str, name: str) -> dict[str, Any]:
        place = self._places[kind, name]
        with self._again(), self.path.open("rb") as file:
            file.seek(place)
            fields = json.loads(file.readline())
            if fields[kind] != name:
                raise ValueError("another content")
        assert isinstance(fields, dict)
        return fields

    def _inflated(self, kind: str, name: str) -> str:
        fields, most = self._fields(kind, name), _LONGEST.get(kind, _LONGEST_JSON)
        with self._again():
            inflate = zlib.decompressobj()
            data = inflate.decompress(base64.b64decode(fields["zlib"]), most)
            if not inflate.eof:
                raise ValueError("too long")
            return data.decode()

    def _again(self) -> AbstractContextManager[None]:
        """Read the file again; an exception means that it is damaged."""
        name = self.path.name
        message = f"{name} is damaged, or has changed since it was opened."
        hint = "Open it again, or record the compile again."
        return reporting(lambda wrong: EngineError("file", message, name, hint))


def read(path: Path) -> Recording:
    """A recording from its file. Raises EngineError of kind "file" if it is not a recording, or is
    damaged before its last line."""
    found: Recording | None = None
    number = 0
    try:
        with path.open("rb") as file:
            place = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE:
                    raise ValueError("a line is too long")
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
        message = f"{path.name} is not a recording, or is damaged in line {number}."
        raise EngineError("file", message, path.name, "Record the compile again.") from wrong
    if found is None:
        raise EngineError("file", f"{path.name} is not a recording.", path.name)
    _own_times(found.passes)
    return found


def _begun(fields: dict[str, Any], path: Path) -> Recording:
    made = fields["relascope_recording"]
    if made != VERSION:
        message = f"{path.name} is a recording of version {made}; this relascope reads {VERSION}."
        raise EngineError("file", message, path.name, "Open it with the relascope that wrote it.")
    return Recording(path, {k: v for k, v in fields.items() if k != "relascope_recording"})


def _add(found: Recording, fields: dict[str, Any], place: int) -> None:
    for kind in ("text", "graph", "blob", "json"):
        if kind in fields:
            found._places[kind, _str(fields[kind])] = place
            return
    if "context" in fields and "begin" not in fields:
        config = {_str(k): _str(v) for k, v in fields["config"].items()}
        names = tuple(map(_str, fields["required"])), tuple(map(_str, fields["disabled"]))
        context = Context(int(fields["opt_level"]), *names, config)
        found._contexts[_count(fields["context"])] = context
    elif "stopped" in fields:
        found.stopped = _str(fields["stopped"])
    elif "begin" in fields:
        _begin(found, fields)
    else:
        _end(found, fields)


def _begin(found: Recording, fields: dict[str, Any]) -> None:
    number, depth = fields["begin"], _count(fields["depth"])
    if number != len(found.passes):
        raise ValueError("a pass is missing")
    if number >= _MOST_PASSES or depth > _DEEPEST:
        what = f"more than {_MOST_PASSES:,} passes, or {_DEEPEST} inside one another"
        hint = "Record a part of the compile."
        raise EngineError("file", f"{found.path.name} has {what}.", found.path.name, hint)
    about = depth, _str(fields["name"]), _count(fields["opt_level"])
    module, before = _module(found, fields)
    found._numbers[number] = [module, None]
    run = PassRun(number, *about, before)
    run.kind, run.thread = _str(fields.get("kind", "pass")), _count(fields.get("thread", 0))
    run.required = tuple(map(_str, fields.get("required", ())))
    run.context = found._contexts[fields["context"]] if "context" in fields else None
    run.at = _seconds(fields["at"]) if "at" in fields else None
    found.passes.append(run)


def _end(found: Recording, fields: dict[str, Any]) -> None:
    number = _count(fields["end"] if "end" in fields else fields["failed"])
    run = found.passes[number]
    run.seconds = _seconds(fields["seconds"])
    if "failed" in fields:
        run.failure = _str(fields["message"])
        return
    found._numbers[number][1], run.after = _module(found, fields)
    _take(found, len(run.touched or ()))
    for language, text in fields.get("code", ()):
        if ("text", text) not in found._places:
            raise ValueError("a content is missing")
        found.kernels.append(Code(number, _str(language), text))


def _module(found: Recording, fields: dict[str, Any]) -> tuple[int | None, dict[str, str] | None]:
    """The number of an event's module, and its functions."""
    given = fields.get("module")
    if given is None:
        return None, None
    if not isinstance(given, list):
        return _count(given), found._modules[given]
    of, new, gone = given
    functions = {} if of is None else dict(found._modules[_count(of)])
    for name in gone:
        del functions[name]
    for name, content in new.items():
        if ("text", content) not in found._places:
            raise ValueError("a content is missing")
        functions[name] = content
    _take(found, len(functions))
    found._modules.append(functions)
    return len(found._modules) - 1, functions


def _take(found: Recording, entries: int) -> None:
    found._entries += entries
    if found._entries > _MOST:
        message = f"The modules of {found.path.name} have more than {_MOST:,} functions in all."
        raise EngineError("file", message, found.path.name, "Record a part of the compile.")


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds <= _LONGEST_TIME:  # also where it is no number
        raise ValueError("a time is none")
    return seconds


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value)} for a text")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r} for a number")
    return value


def _own_times(passes: list[PassRun]) -> None:
    for run, around, ended in walk(passes):
        if not ended:  # passes of other threads may be in between
            run.depth, run.own_seconds = len(around), run.seconds
            if around and run.seconds is not None and around[-1].own_seconds is not None:
                around[-1].own_seconds -= run.seconds


def walk(passes: Iterable[PassRun]) -> Iterator[tuple[PassRun, list[PassRun], bool]]:
    """Each pass as it begins (False) and as it ends (True), with those around it. What a pass ran
    inside ends before it; in a thread, so does a pass before the next that is not inside it."""
    threads: dict[int, list[PassRun]] = {}
    for run in passes:
        around = threads.setdefault(run.thread, [])
        while len(around) > run.depth:
            yield around.pop(), around, True
        yield run, around, False
        around.append(run)
    for around in threads.values():
        while around:
            yield around.pop(), around, True
