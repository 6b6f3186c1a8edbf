"""Built programs as `Executable`s; what both runtimes share."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.building.options import both
from relascope.passes.program import Mask, Program

Tensors = Mapping[str, torch.Tensor]
Spent = dict[str, torch.Tensor]

ALIGNMENT = 64
"""Bytes; kAllocAlignment in TVM's runtime."""


class Executable(Protocol):
    """A built program that runs on torch tensors, all by name."""

    has_backward: bool
    drawn_again: tuple[Mask, ...]
    """Masks that the caller draws for the forward and again for the backward."""
    functions: tuple["Compiled", ...]

    def own_memory(self, values: Tensors, backward: bool) -> "OwnMemory | None":
        """The memory that TVM holds for a run, beside PyTorch's tensors; None if unknown. `values`
        has inputs, parameters, masks and grad_outs by name; with `backward`, the run goes on to the
        gradients."""

    @contextmanager
    def counting(self) -> Iterator[bool]:
        """A context in which it uses only PyTorch's memory, which PyTorch's allocator counts. Gives
        False if it cannot: then PyTorch's count leaves out `own_memory`."""
        with ExitStack() as stack:
            yield all([stack.enter_context(f.counting()) for f in self.functions])

    def forward(self, values: Tensors) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        """From inputs, parameters and masks to the outputs, and the captures by name."""

    def backward(self, values: Tensors, spent: Spent | None = None) -> dict[str, torch.Tensor]:
        """From those, grad_outs and captures to the gradients, by the names of their tensors.
        `spent` holds more values, which may be taken out and freed after their last reader."""


Pools = Mapping[Hashable, int]
"""Bytes by the pool that keeps them for reuse: a size, or a memory."""


@dataclass(frozen=True)
class OwnMemory:
    """The memory that TVM holds for a call of a function, beside PyTorch's tensors. `peak` is the
    most bytes at one time, `results` the part of it that the results keep. `pools` are bytes that
    stay for the next call; `results_of` is the results' part of them, `given` the part that
    arguments hold at first and the call frees."""

    peak: int
    results: int = 0
    pools: Pools = field(default_factory=dict)
    results_of: Pools = field(default_factory=dict)
    given: Pools = field(default_factory=dict)

    @property
    def kept(self) -> int:
        return sum(self.pools.values())

    def followed_by(self, other: "OwnMemory") -> "OwnMemory":
        """Both calls, the second while the first's results are held."""
        held = self.results - sum(other.given.values())
        peak = max(self.peak, held + other.peak)
        left = Counter(self.results_of)
        left.subtract(other.given)
        pools = {
            pool: max(self.pools.get(pool, 0), left[pool] + size)
            for pool, size in {**dict.fromkeys(self.pools, 0), **other.pools}.items()
        }
        return OwnMemory(peak, held + other.results, pools)


class Compiled(Protocol):
    """One built function; `used` names the arguments that some result depends on."""

    used: tuple[str, ...]

    def own_memory(self, values: Tensors) -> OwnMemory | None:
        """The memory that TVM holds for a call; None if unknown."""

    def spend(self, values: Tensors, keep: Iterable[str], spent: Spent) -> tuple[torch.Tensor, ...]:
        """Run once, on `spent`, too; a tensor taken out of it is freed after its last reader,
        unless someone else holds it."""
        return self.run({**values, **spent}, keep)

    def counting(self) -> AbstractContextManager[bool]:
        """See `Executable.counting`."""
        return nullcontext(False)

    def run(self, values: Tensors, keep: Iterable[str] = ()) -> tuple[torch.Tensor, ...]:
        """Run once. Raises EngineError of kind "input" if an argument is missing or of another
        type.

        `values` has a tensor for every argument by name; others are ignored, and none is changed.
        Arguments in `keep`, such as parameters, stay in place from call to call, so they are handed
        over once. The results are flattened, in memory of their own."""


class Build(Protocol):
    """Builds one function of an engine's program, by its name."""

    def __call__(self, program: Any, *, name: str) -> Compiled: ...


class WholeExecutable(Executable):
    """A program built as one function; a joint program only for comparing, not for timing.

    Its forward hands any gradients to its backward, which only picks them out.
    """

    drawn_again = ()

    def __init__(self, program: Program, build: Build) -> None:
        self._gradients, self._parameters = program.gradients, tuple(program.params)
        self.has_backward = bool(program.gradients)
        self._whole = build(program, name="main")
        self.functions = (self._whole,)

    def own_memory(self, values: Tensors, backward: bool) -> OwnMemory | None:
        return self._whole.own_memory(values)

    def forward(self, values: Tensors) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        results = self._whole.run(values, keep=self._parameters)
        count = len(results) - len(self._gradients)
        gradients = zip(self._gradients, results[count:], strict=True)
        return results[:count], {f"gradient of {n}": g for n, g in gradients}

    def backward(self, values: Tensors, spent: Spent | None = None) -> dict[str, torch.Tensor]:
        values = {**values, **(spent or {})}
        return {n: values[f"gradient of {n}"] for n in self._gradients}


class TrainingExecutable(Executable):
    """A forward and a backward, built from a split program."""

    has_backward = True

    def __init__(self, program: Program, split: Any, build: Build) -> None:
        self.captures: tuple[str, ...] = split.capture_names
        self.outputs, self.gradients = program.outputs, program.gradients
        self.grad_outs = program.grad_outs
        self.parameters = tuple(program.params)
        self._forward, self._backward = both(
            partial(build, split.forward, name="forward"),
            partial(build, split.backward, name="backward"),
        )
        self.functions = self._forward, self._backward
        again = {split.cut.joint.graph.by_id[i].name for i in split.cut.drawn_again}
        self.drawn_again = tuple(m for m in program.masks if m.name in again)
        states = (m.state for m in self.drawn_again)
        self.read_by_backward = frozenset(self._backward.used).difference(again).union(states)

    def own_memory(self, values: Tensors, backward: bool) -> OwnMemory | None:
        first = self._forward.own_memory(values)
        if first is None or not backward:
            return first
        _, captures = self.forward(values)
        second = self._backward.own_memory({**values, **captures})
        return second and first.followed_by(second)

    def forward(self, values: Tensors) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        results = self._forward.run(values, keep=self.parameters)
        captures = dict(zip(self.captures, results[self.outputs :], strict=True))
        return results[: self.outputs], captures

    def backward(self, values: Tensors, spent: Spent | None = None) -> dict[str, torch.Tensor]:
        results = self._backward.spend(values, self.parameters, {} if spent is None else spent)
        return dict(zip(self.gradients, results, strict=True))


def built(program: Program, split: Any | None, build: Build) -> Executable:
    if split is None:
        return WholeExecutable(program, build)
    return TrainingExecutable(program, split, build)


def given(values: Tensors, name: str) -> torch.Tensor:
    """An argument's value. Raises EngineError of kind "input" if it is missing."""
    if name not in values:
        raise EngineError("input", f"The argument {name} is missing.", name)
    return values[name]


def tensor_of(array: Any) -> torch.Tensor:
    """A TVM tensor as PyTorch's, on the same memory. Both use one stream; `torch.from_dlpack` would
    ask for it, which takes longer on a GPU than a kernel."""
    return torch._C._from_dlpack(array.__dlpack__())


def ready(values: Tensors, name: str, kind: TensorType) -> torch.Tensor:
    """An argument as kernels take it: of the built type, contiguous and aligned; a copy if needed.
    Raises EngineError of kind "input" if it is missing or of another type."""
    value = given(values, name)
    its = TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    if not its.fits(kind):
        raise EngineError("input", f"{name} is {its}, but the function was built for {kind}.", name)
    value = value.detach().contiguous()
    return value.clone() if value.data_ptr() % ALIGNMENT else value
