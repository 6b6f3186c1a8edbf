"""A program small enough to read on which a pass shows what it does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, ClassVar, TypeVar

import numpy as np

from relascope.passes.catalogue import info, read_pipeline
from relascope.passes.program import Program

P = TypeVar("P", bound=Program)


@dataclass(frozen=True)
class Example:
    """A typed program on which a pass is shown, after the passes that it needs. `params` are the
    pass's, as in a pipeline's text; `differs` says why results differ on purpose, or ""."""

    program: Program
    params: tuple[tuple[str, str], ...] = ()
    differs: str = ""


@dataclass(frozen=True)
class Parts:
    """Makes the parts of one example; each IR adds `const`, which makes constants, `variable`,
    `program`, and `of_module`, the program of a module with "main". `arguments` are those of
    "main", in order; `weights` names the parameters, whose values are drawn."""

    ir = ""
    const: ClassVar[Callable[..., Any]]
    dtype: str
    arguments: list[Any] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)

    def variable(self, name: str, shape: Sequence[int], dtype: str) -> Any:
        raise NotImplementedError

    def program(self, body: Any) -> Any:
        """A typed program whose one function, "main", takes all arguments and computes `body`."""
        raise NotImplementedError

    def var(self, name: str, *shape: int, dtype: str = "") -> Any:
        """An argument, of the example's dtype by default."""
        self.arguments.append(self.variable(name, shape, dtype or self.dtype))
        return self.arguments[-1]

    def weight(self, name: str, *shape: int, dtype: str = "") -> Any:
        """An argument that is a parameter."""
        self.weights.append(name)
        return self.var(name, *shape, dtype=dtype)

    def constant(self, name: str, *shape: int) -> Any:
        """A constant, such as a bound weight."""
        return self.const(draw(name, *shape, dtype=self.dtype), self.dtype)

    def typed(
        self,
        make: Callable[..., P],
        array: Callable[[np.ndarray], Any],
        mod: Any,
        kinds: Mapping[str, Any],
        result: Any,
    ) -> P:
        """A program of a typed module, with drawn parameters as TVM's arrays. `kinds` has the types
        of all arguments of "main" by name, `result` is that of what it returns."""

        def drawn(name: str) -> Any:
            size = getattr(kinds[name].shape, "values", kinds[name].shape)
            return array(draw(name, *map(int, size), dtype=str(kinds[name].dtype)))

        inputs = tuple(n for n in kinds if n not in self.weights)
        params = {n: drawn(n) for n in self.weights}
        return make(mod, params, inputs, len(getattr(result, "fields", [result])))

    def example(
        self,
        body: Any,
        after: str = "",
        params: tuple[tuple[str, str], ...] = (),
        differs: str = "",
    ) -> Example:
        """The example whose program is `body`, `after` the pipeline that the pass needs."""
        program = self.program(body)
        for step in read_pipeline(self.ir, after):
            entry = info(self.ir, step)
            program = entry.load()(program, **entry.arguments(step))
        return Example(program, params, differs)


Make = Callable[[str], Example]
"""Builds an example whose floating tensors have a dtype: "float32" or "float64"."""


def draw(name: str, *shape: int, dtype: str) -> np.ndarray:
    """Values between 0.5 and 1.5, fixed by the name: positive, as variances must be."""
    seed = int.from_bytes(name.encode(), "little") % 2**32
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(dtype)


def by_name(parts: Callable[[str], Any], *modules: ModuleType) -> Mapping[str, Make]:
    """The examples in some modules, by the names of their functions, which are their passes'."""

    def made(function: FunctionType) -> Make:
        return lambda dtype: function(parts(dtype))

    return {
        name: made(value)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }
