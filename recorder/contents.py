"""The content of functions in a recording: text, constants, graph."""

import json
import sys
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from relascope.core.builder import Place, digest_of, place_of
from relascope.recorder.drawing import graph_of
from relascope.recorder.writing import LEVELS, Writer, hashed

_FIELDS = ("params", "attrs", "buffer_map", "ret_type", "ret_struct_info", "ret_ty", "is_pure")
_BLOB = 1024  # characters; a longer text in TVM's JSON is stored separately
_MARKS = ("meta[relay.Constant]", 'metadata["')  # how texts name constants
_SAME = 4  # remembered versions of loops of one name


@dataclass
class _Version:
    """A function that was written: its address, a hash of its loops' structure, the name of its
    content, and its constants' addresses."""

    function: Any
    place: Any
    likeness: Any
    name: str
    places: set[Place]


@dataclass
class Contents:
    """Writes the content of functions, each once, as a level of `LEVELS` requires."""

    tvm: Any
    writer: Writer
    level: str
    _versions: dict[str, list[_Version]] = field(default_factory=dict)
    _digests: dict[Place, tuple[Any, str]] = field(default_factory=dict)
    _last: tuple[Any, Any, dict[str, str]] | None = None  # a module's functions, place, hashes
    _names: dict[Any, tuple[Any, str]] = field(default_factory=dict)  # of variables, by place

    def __post_init__(self) -> None:
        self.texts, self.graphs, self.modules = (self.level in LEVELS[n:] for n in (1, 2, 3))
        below = import_module(ffi(self.tvm))
        room = self.tvm.ir if hasattr(self.tvm.ir, "structural_hash") else below
        self._hash, self._equal = room.structural_hash, room.structural_equal
        # Visits only the constants, without a call into Python for everything else.
        self._walk = getattr(below, "structural_walk", None)
        self._loops = (getattr(self.tvm, "tirx", None) or self.tvm.tir).PrimFunc

    def forget(self) -> None:
        """Write everything again from now on."""
        self._versions.clear()
        self._last = None

    def functions(self, mod: Any) -> dict[str, str] | None:
        """Write new content of a module; return the hash of each function's content by its name,
        None where contents are not recorded, or this is not a module."""
        if not self.texts or not hasattr(mod, "functions"):
            return None
        functions = mod.functions
        place = _place(functions)
        # TVM copies functions that are held here before it changes them.
        if self._last is not None and self._last[1] == place:
            return dict(self._last[2])
        made = {}
        for var, function in functions.items():
            name = self._named(var)
            made[name] = self._function(mod, name, function)
        self._last = functions, place, made
        return dict(made)

    def _named(self, var: Any) -> str:
        """A function's name, remembered, because asking TVM takes longer."""
        place = _place(var)
        if place not in self._names:
            self._names[place] = var, str(var.name_hint)
        return self._names[place][1]

    def _function(self, mod: Any, name: str, function: Any) -> str:
        known = self._versions.setdefault(name, [])
        place = _place(function)
        for version in known:
            if version.place == place:
                return version.name
        for version in known:
            if _same(version.function, function):
                version.function, version.place = function, place
                return version.name
        # Loops have no large constants, whose bytes would make a hash slow.
        likeness = self._hash(function) if isinstance(function, self._loops) else None
        for version in known:
            if self._alike(version, function, likeness):
                version.function, version.place = function, place
                return version.name
        text, places = self._text(function)
        constants: list[list[Any]] = [[p[1], p[2], self._digests[p][1]] for p in places]
        content = hashed(text, *(c[-1] for c in constants))
        about = {"constants": constants} if constants else {}
        self.writer.content("text", content, lambda: {**about, "zlib": text})
        if self.graphs and likeness is None:
            self.writer.content("graph", content, lambda: self._graph(mod, name))
        known.insert(0, _Version(function, place, likeness, content, set(places)))
        self._forget(known, _SAME if likeness is not None else 1)
        return content

    def _forget(self, known: list[_Version], most: int) -> None:
        """Drop the oldest versions, and constants that only the recording keeps."""
        gone = known[most:]
        del known[most:]
        if any(v.places for v in gone):
            used = {p for versions in self._versions.values() for v in versions for p in v.places}
            self._digests = {p: d for p, d in self._digests.items() if p in used}

    def _alike(self, version: _Version, function: Any, likeness: Any) -> bool:
        """Whether a new function equals a version except for names."""
        if likeness is not None or version.likeness is not None:
            return bool(version.likeness == likeness)
        same = type(version.function) is type(function)
        return same and bool(self._equal(version.function, function))

    def text(self, text: str, kind: str = "text") -> str:
        """Write a text, and name it."""
        name = hashed(text)
        self.writer.content(kind, name, lambda: {"zlib": text})
        return name

    def _text(self, function: Any) -> tuple[str, list[Place]]:
        """A function's text without the values of constants, and its constants."""
        try:
            if _is_relay(self.tvm, function):
                text = str(function.astext(show_meta_data=False))
            elif hasattr(function, "script"):
                text = str(function.script(show_meta=False))
            else:
                text = str(function)
            if not isinstance(function, self._loops) and any(mark in text for mark in _MARKS):
                return text, [self._constant(c) for c in self._constants(function)]
        except Exception as wrong:  # a printer's fault must not end a compile
            return f"This function cannot be printed: {str(wrong)[-300:]}", []
        return text, []

    def _constants(self, function: Any) -> list[Any]:
        room = self.tvm.relay if _is_relay(self.tvm, function) else self.tvm.relax
        kind = getattr(room, "Constant", None) or self.tvm.ir.GenericConst
        field = "value" if hasattr(kind, "value") else "data"
        found: dict[int, Any] = {}

        def visit(expr: Any) -> None:
            if isinstance(expr, kind):  # a missing attribute takes long to look up
                data = getattr(expr, field)
                if hasattr(data, "numpy"):
                    found[place_of(data)[0]] = data

        if self._walk is not None:
            self._walk(function, (kind, visit))
        else:
            room.analysis.post_order_visit(function, visit)
        return list(found.values())

    def _constant(self, array: Any) -> Place:
        place = place_of(array)
        if place not in self._digests:
            self._digests[place] = array, digest_of(array)
        return place

    def _graph(self, mod: Any, name: str) -> dict[str, Any]:
        try:
            return {"zlib": json.dumps(graph_of(mod, name, self._digests), ensure_ascii=False)}
        except Exception as wrong:  # a graph's fault must not end a compile
            return {"why": f"{type(wrong).__name__}: {str(wrong)[-300:]}"}

    def json(self, number: int, mod: Any) -> None:
        """Write TVM's JSON of a module, each constant once."""
        try:
            whole = json.loads(str(self.tvm.ir.save_json(mod)))
        except Exception as wrong:  # nor must a module that cannot be saved
            self.writer.line({"json": str(number), "why": str(wrong)[-300:]})
            return
        text = json.dumps(self._without_blobs(whole), ensure_ascii=False)
        self.writer.content("json", str(number), lambda: {"zlib": text})

    def _without_blobs(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > _BLOB:
            return {"$blob": self.text(value, "blob")}
        if isinstance(value, list):
            return [self._without_blobs(v) for v in value]
        if isinstance(value, dict):
            return {k: self._without_blobs(v) for k, v in value.items()}
        return value


def _is_relay(tvm: Any, function: Any) -> bool:
    """Whether a function is Relay's, which a program may import late or not at all."""
    relay = sys.modules.get(f"{tvm.__name__}.relay")
    return relay is not None and isinstance(function, relay.Function)


def _same(one: Any, other: Any) -> bool:
    """Whether two functions are the same, or have the same parts; passes often rebuild them."""
    if type(one) is not type(other) or _place(one.body) != _place(other.body):
        return False
    fields = _FIELDS_OF.get(type(one))
    if fields is None:  # looking up a missing one takes long in some TVMs
        fields = _FIELDS_OF[type(one)] = tuple(f for f in _FIELDS if hasattr(one, f))
    return all(_place(getattr(one, f)) == _place(getattr(other, f)) for f in fields)


_FIELDS_OF: dict[type, tuple[str, ...]] = {}


def _place(part: Any) -> Any:
    """The address of a TVM object; TVM's `same_as` recurses for ever on a type in 0.17."""
    if part is None or isinstance(part, bool):
        return part
    return part.__chandle__() if hasattr(type(part), "__chandle__") else part.handle.value


def ffi(tvm: Any) -> str:
    """The package through which this TVM calls C++; `tvm_ffi` may belong to another TVM."""
    rooms = ("_ffi", "ffi")
    return next((f"tvm.{r}" for r in rooms if find_spec(f"tvm.{r}") is not None), "tvm_ffi")
