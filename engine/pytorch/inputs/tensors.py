"""A model's inputs: from its file, from the person, saved, or drawn.

Ids are drawn below the number of rows that the model looks up; masks keep a part of each row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.files.tensors import Saved
from relascope.engine.protocol.results import ModelInputs, OpenSize
from relascope.engine.protocol.source import EXAMPLE, InputType, ModelSource, input_text
from relascope.engine.pytorch.flat_trace import FlatTrace

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Input:
    """An input as far as its file describes it: its type, the number of rows that the model looks
    up with it, and the smallest and largest of an example's integers."""

    name: str
    type: TensorType | None = None
    rows: int | None = None
    seen: tuple[int, int] | None = None


def tensor_type(tensor: Tensor) -> TensorType:
    shape = tuple(d if isinstance(d, int) else str(d) for d in tensor.shape)  # of a symbol
    return TensorType(shape, str(tensor.dtype).removeprefix("torch."))


def dtype_in_run(own: torch.dtype, dtype: str) -> torch.dtype:
    """A dtype in a run in `dtype`: only float32, float64 and complex ones change."""
    run = getattr(torch, dtype)
    if own in (torch.float32, torch.float64):
        return run
    return run.to_complex() if own in (torch.complex64, torch.complex128) else own


def hint_of(names: Iterable[str]) -> str:
    example = ", ".join(f"{n}=1x14x768:float32" for n in names)
    return f"Give one type per input, such as {example or EXAMPLE}."


def assigned(
    given: Iterable[tuple[str, Kept]], names: Sequence[str], where: str = ""
) -> dict[str, Kept]:
    """What is given for each input: by name, or in order if it has none. Raises EngineError of kind
    "input" if there is no such input, or too many are given; `where` is the file that gives them,
    "" for the person."""
    given = [*given]
    listed = ", ".join(names) or "no inputs"
    found = {n: one for n, one in given if n}
    hint = hint_of(names) if not where else f"Save the tensors under forward()'s names: {listed}."
    if strange := [n for n in found if n not in names]:
        message = f"forward() has no input {strange[0][:80]!r}; it takes {listed}."
        raise EngineError("input", message, where or strange[0][:80], hint)
    free = [n for n in names if n not in found]
    rest = [one for n, one in given if not n]
    if len(rest) > len(free):
        message = f"forward() takes {len(names)} inputs ({listed}), not {len(given)}."
        raise EngineError("input", message, where or listed, hint)
    return {**found, **dict(zip(free, rest, strict=False))}


def types_of(inputs: Sequence[Input], source: ModelSource, saved: Saved) -> dict[str, TensorType]:
    """The type of each input: as saved, else as the person gives it, else as in the file. Raises
    EngineError of kind "input" if one has none, or a given shape is not the saved one."""
    names = [one.name for one in inputs]
    said = assigned(source.inputs, names)
    kept = assigned(saved, names, file_of(source))
    recorded = {one.name: one.type for one in inputs if one.type is not None}
    types: dict[str, TensorType] = {}
    known = {**said, **kept}
    positional = any(not n for n, _ in source.inputs) and not kept and len(said) != len(names)
    if positional or not {*names} <= {*known, *recorded}:
        listed = ", ".join(names)
        message = f"The file does not record the shapes of its inputs: {listed}."
        if known:
            message = f"forward() takes {len(names)} inputs ({listed}), not {len(known)}."
        raise EngineError("input", message, listed, hint_of(names))
    for name in names:
        if name in kept:
            types[name] = tensor_type(kept[name])
            if name in said and tuple(said[name].shape) != tuple(types[name].shape):
                message = f"{name} is given as {said[name]}, but saved as {types[name]}."
                raise EngineError("input", message, file_of(source), "Leave one of them out.")
        else:
            types[name] = said.get(name) or recorded[name]
    return types


def input_tensors(
    inputs: Sequence[Input], types: dict[str, TensorType], source: ModelSource, saved: Saved
) -> tuple[Tensor, ...]:
    """One tensor per input: the saved one (see `fitting`), or a random one."""
    kept = assigned(saved, [one.name for one in inputs], file_of(source))
    generator = torch.Generator().manual_seed(source.seed)
    found = []
    for one in inputs:
        drawn = draw(one, types[one.name], source.dtype, generator)
        tensor = kept.get(one.name)
        found.append(drawn if tensor is None else fitting(one, tensor, drawn.dtype, source))
    return tuple(found)


def fitting(argument: Input, tensor: Tensor, dtype: torch.dtype, source: ModelSource) -> Tensor:
    """A saved tensor as an input: floating-point ones in the run's dtype, integers as they are.
    Refused (kind "input") if it is of another kind, or its integers are not rows that exist."""
    wanted = dtype if argument.type is None else getattr(torch, argument.type.dtype)
    if wanted in (torch.float32, torch.float64):
        wanted = dtype
    cast = tensor.to(wanted)
    same = wanted.is_floating_point or torch.equal(cast.to(tensor.dtype), tensor)
    if tensor.is_floating_point() != wanted.is_floating_point or not same:
        kind = str(wanted).removeprefix("torch.")
        message = f"{argument.name} is saved as {tensor_type(tensor)}, but the model takes {kind}."
        raise EngineError("input", message, file_of(source), f"Save it as {kind}.")
    if argument.rows is not None and not wanted.is_floating_point:
        _check_rows(argument, int(cast.min()), int(cast.max()), file_of(source))
    return cast


def _check_rows(one: Input, least: int, most: int, where: str) -> None:
    if one.rows is not None and not 0 <= least <= most < one.rows:
        off = most if most >= one.rows else least
        message = f"{one.name} contains {off}, but the model uses it to look up {one.rows} rows."
        raise EngineError("input", message, where, f"Give values from 0 to {one.rows - 1}.")


def file_of(source: ModelSource) -> str:
    return source.tensors[0][0].rpartition("/")[2] if source.tensors else ""


def range_of(argument: Input, kind: TensorType) -> TensorType:
    """An input's type, with the range to draw from if it is an integer and not a mask."""
    if "int" not in kind.dtype or isinstance(kind, InputType) or _is_mask(argument.name, kind):
        return kind
    # Whatever is looked up has rows 0 and 1.
    ends = argument.seen or (0, 1) if argument.rows is None else (0, argument.rows - 1)
    return InputType(kind.shape, kind.dtype, *ends)


def described(
    inputs: Sequence[Input],
    types: dict[str, TensorType],
    source: ModelSource,
    saved: Saved,
    sizes: tuple[OpenSize, ...],
) -> ModelInputs:
    """A model's inputs, described for people."""
    kept = assigned(saved, [one.name for one in inputs], file_of(source))
    texts, words = [], []
    for one in inputs:
        kind = types[one.name]
        texts.append(input_text(one.name, kind if one.name in kept else range_of(one, kind)))
        words.append(_says(one, kind, source, one.name in kept))
    return ModelInputs(tuple(texts), tuple(words), sizes)


def _says(one: Input, kind: TensorType, source: ModelSource, saved: bool) -> str:
    """Where the values of an input come from, in words; `kind` is as of `types_of`."""
    if saved:
        return f"saved in {file_of(source)}"
    if isinstance(kind, InputType):
        return "as given"
    if _is_mask(one.name, kind):
        return "a mask that keeps a part of each row"
    if "int" not in kind.dtype:
        return "normal"
    if one.rows is not None:
        return f"the model uses it to look up {one.rows:,} rows"
    return "0 or 1" if one.seen is None else "as in the file's example"


def _is_mask(name: str, kind: TensorType) -> bool:
    return kind.dtype == "bool" or "mask" in name.lower()


def draw(argument: Input, kind: TensorType, dtype: str, generator: torch.Generator) -> Tensor:
    """A random input of a type, in the range of an `InputType`; float32 and float64 become
    `dtype`."""
    own = dtype_in_run(getattr(torch, kind.dtype), dtype)
    shape = [int(d) for d in kind.shape]
    ranged = range_of(argument, kind)
    if isinstance(ranged, InputType):
        _check_rows(argument, ranged.least, ranged.most, argument.name)
        return torch.randint(ranged.least, ranged.most + 1, shape, generator=generator).to(own)
    if not _is_mask(argument.name, kind):
        drawn_in = torch.complex64 if own.is_complex else torch.float32
        return torch.randn(shape, generator=generator, dtype=drawn_in).to(own)
    last = shape[-1] if shape else 1
    # In some models true means kept, in others hidden.
    lengths = torch.randint(1, max(last, 2), shape[:-1], generator=generator)
    return (torch.arange(last) < lengths[..., None]).reshape(shape).to(own)


_VIEW_NAMES = """
    to view reshape unsqueeze squeeze expand expand_as contiguous slice select transpose permute t
    flatten clone detach alias long int type_as _to_copy _unsafe_view narrow _reshape_alias
"""
_VIEWS = frozenset(_VIEW_NAMES.split())


class _Reader(NamedTuple):
    """How to read the values of a kind of graph."""

    name: Callable[[Any], str]  # of the operator that makes a value, without space and overload
    first: Callable[[Any], Any]  # argument of that operator
    shape: Callable[[Any], Sequence[Any]]  # of a tensor
    fixed: Callable[[Any], Any]  # the value of a number
    items: Callable[[Any], Iterable[Any]]  # of a list

    def rows(self, operator: str, args: list[Any]) -> Iterator[tuple[Any, Any]]:
        """(value, rows) for each value with which an operator looks up rows."""
        if operator in ("embedding", "embedding_bag"):
            yield args[1], self.shape(args[0])[0]
        elif operator in ("index_select", "gather"):
            yield args[2], self.shape(args[0])[self.fixed(args[1])]
        elif operator in ("nll_loss", "nll_loss_nd", "cross_entropy_loss"):
            yield args[1], self.shape(args[0])[:2][-1]
        elif operator == "one_hot" and self.fixed(args[1]) > 0:
            yield args[0], self.fixed(args[1])
        elif operator == "index":
            yield from zip(self.items(args[1]), self.shape(args[0]), strict=False)

    def least_rows(
        self, calls: Iterable[tuple[str, list[Any]]], named: Callable[[Any], str]
    ) -> dict[str, int]:
        """The smallest number of rows that operators look up with each value, by its name in
        `named`; they may look up with a view or a cast of it."""
        least: dict[str, int] = {}
        for operator, args in calls:
            with suppress(TypeError, LookupError, AttributeError):  # stops at what is not known
                for value, rows in self.rows(operator, args):
                    while self.name(value) in _VIEWS:
                        value = self.first(value)
                    if type(rows) is int:
                        least[named(value)] = min(rows, least.get(named(value), rows))
        return least


_TRACE = _Reader(
    name=lambda v: v.node().kind().removeprefix("aten::"),
    first=lambda v: v.node().inputsAt(0),
    shape=lambda v: v.type().sizes(),
    fixed=lambda v: v.toIValue(),
    items=lambda v: v.node().inputs(),
)
_PROGRAM = _Reader(
    name=lambda v: v.target.overloadpacket.__name__ if hasattr(v.target, "overloadpacket") else "",
    first=lambda v: v.args[0],
    shape=lambda v: v.meta["val"].shape,
    fixed=lambda v: v,
    items=lambda v: v,
)


def rows_of_trace(flat: FlatTrace) -> dict[str, int]:
    """The smallest number of rows that a trace looks up with each input, by the input's name."""
    names = {v.debugName(): n for v, n in zip(flat.graph.inputs(), flat.input_names, strict=False)}
    calls = ((n.kind().removeprefix("aten::"), [*n.inputs()]) for n in flat.graph.nodes())
    return _TRACE.least_rows(calls, lambda v: names.get(v.debugName(), ""))


def rows_of_program(graph: torch.fx.Graph) -> dict[str, int]:
    """The same for an exported program's graph."""
    calls = ((_PROGRAM.name(n), [*n.args]) for n in graph.nodes)
    return _PROGRAM.least_rows(calls, lambda v: getattr(v, "name", ""))


def with_rows(inputs: Iterable[Input], rows: dict[str, int]) -> tuple[Input, ...]:
    """Inputs with the number of rows that are looked up with them."""
    return tuple(replace(one, rows=rows.get(one.name)) for one in inputs)
