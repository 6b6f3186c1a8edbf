"""One entry of the catalogue of passes."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any, TypeVar

from relascope.passes.applications import Applications, counting
from relascope.passes.catalogue.parameters import Parameter, Value, read_all
from relascope.passes.pipeline import Step

COUNT = "count"
"""The parameter of every pass on relascope's rewriters: how many places, the first, to change."""

F = TypeVar("F", bound=Callable[..., Any])


def listed(
    title: str,
    origin: str,
    *,
    required: bool = False,
    looking: bool = False,
    needs: tuple[str, ...] = (),
    excludes: tuple[str, ...] = (),
    least: Mapping[str, float] | None = None,
) -> Callable[[F], F]:
    """Enter a function among the passes of its IR, under its name, and return it unchanged.
    `passes.catalogue.reader` reads call, signature and docstring from the file, so arguments must
    be literals. See `PassInfo` for them; `least` has the smallest values of parameters, by name."""
    return lambda function: function


@dataclass(frozen=True)
class PassInfo:
    """One entry of the catalogue.

    Args:
        name: as pipelines write it ("fold").
        title: its authors' name for it ("FoldConstant").
        summary: one line on what it does.
        origin: "TVM", or the source of relascope's method.
        function: `module:attribute`, or `FILE.py:attribute` (`passes.catalogue.user`), of a
            callable from program and parameters to program.
        required: its pipeline needs it, so it has no switch.
        looking: for inspection; builds and passes that are not start from the program before it.
        parameters: in a pipeline's text, `name(key=value)`.
        before: the condition under which it does something, a sentence, or "".
        after: the condition afterwards, beyond `summary`, a sentence, or ""."""

    name: str
    ir: str
    title: str
    summary: str
    origin: str
    function: str
    required: bool = False
    looking: bool = False
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    before: str = ""
    after: str = ""

    def load(self) -> Any:
        """Import the callable. Only an engine's process may do this."""
        return getattr(self.module(), self.function.rpartition(":")[2])

    @property
    def own_file(self) -> str:
        """The file of a user's own pass; "" for a pass of the catalogue."""
        module = self.function.rpartition(":")[0]
        return module if module.endswith(".py") else ""

    def module(self) -> ModuleType:
        """Import the callable's module. Only an engine's process may do this."""
        name = self.function.rpartition(":")[0]
        return _run_file(name) if self.own_file else import_module(name)

    def arguments(self, step: Step) -> dict[str, Value]:
        """A step's parameters except `COUNT`, as the callable takes them. Raises ValueError if one
        is not declared or not valid, and says what would be."""
        own = step.params
        if self.count(step) is not None:
            own = tuple((n, v) for n, v in step.params if n != COUNT)
        return read_all(self.title, self.parameters, own)

    def count(self, step: Step) -> int | None:
        """How many places, the first ones, a step applies the pass to; None is all. Raises
        ValueError if it is not a count, or this pass does not count its applications."""
        if any(p.name == COUNT for p in self.parameters):
            return None
        given = dict(step.params).get(COUNT)
        if given is None:
            return None
        if not given.isdigit():
            raise ValueError(f"{COUNT}={given} is not a count; give a whole number from 0")
        if why := self.not_counted:
            raise ValueError(f"the applications of {self.title} are not counted: {why}")
        return int(given)

    @property
    def not_counted(self) -> str:
        """Why its applications cannot be counted; "" if they can."""
        if self.origin == "TVM":
            return "TVM's passes do their own rewriting"
        return "the program needs all of them" if self.required else ""

    def applied(self, program: Any, step: Step) -> Any:
        """A program after the pass. Only an engine's process may do this."""
        return self.applied_and_counted(program, step, Applications(self.count(step)))

    def applied_and_counted(self, program: Any, step: Step, applications: Applications) -> Any:
        """The same, counting in `applications`, whose `most` is the count. Raises ValueError if
        there is a count but the pass does not count."""
        with counting(applications):
            made = self.load()(program, **self.arguments(step))
        if applications.most is not None and not applications.asked and made is not program:
            why = "it does not use the rewriter"
            raise ValueError(f"the applications of {self.title} are not counted: {why}")
        return made


def _run_file(path: str) -> ModuleType:
    """Import a file by its path, once per process; it can import files beside it."""
    if path not in sys.modules:
        if (folder := os.path.dirname(path)) not in sys.path:
            sys.path.append(folder)
        spec = spec_from_file_location(path, path)
        assert spec is not None, "a name that ends in .py has a loader"
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[path] = module
    return sys.modules[path]
