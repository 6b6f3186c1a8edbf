"""Where a pipeline stands after a step, and which steps may stand where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.faults import narrow
from relascope.engine.protocol.fault import Where
from relascope.engine.protocol.results import StepRecord
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import Model
from relascope.engine.server.backend import Program
from relascope.passes.catalogue import PassInfo, check_gradient, info
from relascope.passes.pipeline import Step


@dataclass(frozen=True)
class State:
    """Where a pipeline stands after a step.

    Args:
        program: what the next step, or the build, starts from.
        graph: what is shown of the step; after a pass that is only for looking, not `program`'s.
        exprs: for `program`, the IR's expression behind each id of its graph.
        base: graph of `program`, which the next step's nodes are matched against.
        done: names of the passes that ran on the way here.
        shown: after passes that are only for looking, the program that `graph` is of, from which
            the next such pass goes on; else None.
    """

    program: Program
    graph: Graph
    base: Graph
    exprs: dict[str, Any]
    record: StepRecord | None = None
    done: frozenset[str] = frozenset()
    shown: Program | None = None


@dataclass(frozen=True)
class Loaded:
    model: Model
    state: State
    seconds: float


def check_gradient_of(ir: str, source: ModelSource) -> None:
    """Refuse a source whose gradient this IR does not have.

    Raises:
        EngineError: kind "usage".
    """
    try:
        if source.training:
            check_gradient(ir, source.gradient)
    except ValueError as wrong:
        message = f"{str(wrong)[0].upper()}{str(wrong)[1:]}."
        hint = "Choose TVM's gradient, or the engine Relax."
        raise EngineError("usage", message, "gradient", hint) from wrong


def entry_of(ir: str, step: Step) -> PassInfo:
    """The catalogue's entry for a step.

    Raises:
        EngineError: kind "usage"; no pass of this IR has that name.
    """
    try:
        return info(ir, step)
    except KeyError:
        message = f"There is no {ir} pass called {step.name!r}."
        raise EngineError("usage", message, str(step), "`relascope passes` lists them.") from None


def check_order(entry: PassInfo, done: frozenset[str], joint: bool) -> None:
    """Refuse a pass at a place in the pipeline where it cannot work.

    Args:
        done: names of the passes that ran before it.
        joint: whether the program has its gradients already.

    Raises:
        EngineError: kind "pass"; names what is missing before it, or what must not be there.
    """
    if entry.required and joint and "gradient" not in done:
        raise EngineError(
            "pass",
            f"{entry.title} is a step of TVM's way to the gradient, and this program came "
            "with PyTorch's.",
            entry.name,
            "Choose TVM's gradient, or leave this pass out.",
        )
    missing = [n for n in entry.needs if n not in done]
    if missing:
        names = ", ".join(missing)
        hint = f"Switch {names} on in front of it, or see why it failed."
        raise EngineError("pass", f"{entry.title} needs {names} before it.", entry.name, hint)
    wrong = [n for n in entry.excludes if n in done]
    if wrong:
        names = ", ".join(wrong)
        hint = f"Switch {names} off, or move it behind the gradient's steps."
        raise EngineError("pass", f"{entry.title} cannot work after {names}.", entry.name, hint)


def arguments_of(entry: PassInfo, step: Step) -> dict[str, Any]:
    """What a step tells its pass.

    Raises:
        EngineError: kind "usage"; the pass does not take that.
    """
    try:
        return entry.arguments(step)
    except ValueError as wrong:
        raise EngineError("usage", f"{wrong}.", str(step), "Change it, or leave it out.") from wrong


def suspected(where: Where) -> list[Step]:
    """The suspected steps that are on."""
    return [s for s in where.pipeline.steps[where.first : where.last + 1] if s.enabled]


def tail_of(ir: str, where: Where) -> list[Step]:
    """The steps that are run after the suspected ones."""
    after = where.pipeline.steps[where.last + 1 :] if where.tail else ()
    return [s for s in after if s.enabled and not entry_of(ir, s).looking]


def named(ir: str, step: Step) -> tuple[Step, PassInfo]:
    return step, entry_of(ir, step)


def as_pass(ir: str, step: Step) -> narrow.Pass:
    """A step as a function, whose code is imported when it is called: that may fail, too."""
    entry = entry_of(ir, step)
    return lambda program, **told: entry.load()(program, **told), arguments_of(entry, step)
