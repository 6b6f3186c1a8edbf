"""The state of a pipeline after a step, and which steps may stand where."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.building.options import Function
from relascope.engine.faults.narrow import Passes
from relascope.engine.protocol.fault import Suspicion
from relascope.engine.protocol.results import Application, ImportChange, StepRecord
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import Model
from relascope.engine.server.backend import Program
from relascope.passes.catalogue import PassInfo, info
from relascope.passes.catalogue.entry import COUNT
from relascope.passes.pipeline import Step


@dataclass(frozen=True)
class State:
    """The state of a pipeline after a step. The next step, or the build, starts from `program`,
    whose graph is `base`: the next step's nodes are matched against it. `exprs` has the IR's
    expression behind each id of `base`. `graph` is the graph to show: after passes for inspection,
    that of the program `shown`, from which the next such pass starts (else None). `done` has the
    names of the passes that ran, and `applications` what the step replaced, even if it failed."""

    program: Program
    graph: Graph
    base: Graph
    exprs: dict[str, Any]
    record: StepRecord | None = None
    done: frozenset[str] = frozenset()
    shown: Program | None = None
    applications: tuple[Application, ...] = ()

    @property
    def function(self) -> Function:
        return Function(self.program, "main", self.base, self.exprs)


@dataclass(frozen=True)
class Loaded:
    """A model, its imported program, the seconds that both took, and what the import did."""

    model: Model
    state: State
    seconds: float
    changes: tuple[ImportChange, ...]


def entry_of(ir: str, step: Step) -> PassInfo:
    """The catalogue's entry for a step. Raises EngineError of kind "usage" if there is none."""
    try:
        return info(ir, step)
    except KeyError:
        message = f"There is no {ir} pass called {step.name!r}."
        raise EngineError("usage", message, str(step), "See `relascope passes`.") from None


def check_order(entry: PassInfo, done: frozenset[str], joint: bool, training: bool) -> None:
    """Refuse a pass at a place in the pipeline where it cannot work. Raises EngineError of kind
    "pass", which names what is missing before it, or what must not come before."""
    if entry.required and joint and "gradient" not in done:
        text = "is a step to TVM's gradient, and this program was imported with PyTorch's."
        hint = "Choose TVM's gradient, or leave this pass out."
        raise EngineError("pass", f"{entry.title} {text}", entry.name, hint)
    if entry.name == "root_grad_out" and not training:
        text = "is the first step to a gradient, and the model was loaded for inference."
        hint = "Load it for training (--training), or leave this pass out."
        raise EngineError("pass", f"{entry.title} {text}", entry.name, hint)
    if entry.name in done and entry.name in entry.excludes:
        message = f"{entry.title} has run already, and cannot run twice."
        raise EngineError("pass", message, entry.name, "Leave the second one out.")
    if missing := ", ".join(n for n in entry.needs if n not in done):
        hint = f"Switch {missing} on before it, or see why it failed."
        raise EngineError("pass", f"{entry.title} needs {missing} before it.", entry.name, hint)
    if wrong := ", ".join(n for n in entry.excludes if n in done):
        hint = f"Switch {wrong} off, or move it after the gradient's steps."
        raise EngineError("pass", f"{entry.title} cannot work after {wrong}.", entry.name, hint)


def check_may_run(program: Program, source: ModelSource) -> None:
    """Refuse to run a file's code that nobody has allowed, by an EngineError of kind "code"."""
    if program.code and not source.kernels:
        named = ", ".join(program.code[:3]) + (", …" if len(program.code) > 3 else "")
        message = f"This module contains code of its own ({named}), which is shown but not run."
        hint = "Run it with --run-kernels, or with the button on the page: it runs in the sandbox."
        raise EngineError("code", message, program.code[0], hint)


def check_runs(program: Program, source: ModelSource) -> None:
    """Refuse (kind "input", and as `check_may_run` does) to run a program that cannot be called."""
    if program.not_run:
        message = f"This program can be shown and stepped, but not run: {program.not_run}."
        hint = "Let it take tensors of known sizes as arguments, and return tensors."
        raise EngineError("input", message, source.model, hint)
    check_may_run(program, source)


def check_kind(title: str, before: Program, after: Program) -> None:
    """Refuse (kind "pass") a result of a pass that is not a program."""
    if not isinstance(after, type(before)):
        wrong = type(after).__name__
    elif not isinstance(after.mod, type(before.mod)):
        wrong = f"a program whose mod is {type(after.mod).__name__}"
    else:
        return
    returns = f"{type(before).__name__} whose mod is {type(before.mod).__name__}"
    hint = "Return dataclasses.replace(program, mod=...)."
    raise EngineError("pass", f"{title} returned {wrong}; a pass returns a {returns}.", title, hint)


def check_signature(
    entry: PassInfo, before: tuple[Program, Graph], after: tuple[Program, Graph]
) -> None:
    """Refuse a program after a pass that cannot be called like the one before it. A pass may remove
    arguments that are parameters, or random numbers that the program now takes in another way, and
    the steps to the gradient change the results. Raises EngineError of kind "type", which names the
    argument or result."""
    (was, old), (now, new) = before, after
    given = [[g.by_id[i] for i in g.inputs] for g in (old, new)]
    types, made = ({n.name: str(n.outputs[0]) for n in nodes} for nodes in given)
    known = {*now.inputs, *now.params, *now.grad_outs, *(m.name for m in now.masks)}
    known |= set(types) if was.not_run else set()
    wrong = [f"added an argument {n}, which gets no value" for n in made if n not in known]
    may_go = {*was.params, *({m.name for m in was.masks} - {m.name for m in now.masks})}
    wrong += [f"removed the argument {n}" for n in types if n not in made and n not in may_go]
    wrong += [
        f"changed the argument {n} from {kind} to {made[n]}"
        for n, kind in types.items()
        if made.get(n, kind) != kind
    ]
    if not entry.required and was.gradients == now.gradients:
        results, found = ([t for i in g.outputs for t in g.by_id[i].outputs] for g in (old, new))
        if len(results) != len(found):
            wrong.append(f"changed the number of results from {len(results)} to {len(found)}")
        pairs = enumerate(zip(results, found, strict=False))
        wrong += [f"changed result {i} from {a} to {b}" for i, (a, b) in pairs if not a.fits(b)]
    if wrong:
        hint = 'A pass must keep what "main" takes and returns; see the Program that it is given.'
        raise EngineError("type", f"{entry.title} {wrong[0]}.", entry.title, hint)


def places_of(before: State, replaced: Sequence[Any]) -> tuple[Application, ...]:
    """The nodes of some expressions in the program before a pass."""
    ids = {_handle(e): i for i, e in before.exprs.items()} if replaced else {}
    found = []
    for expr in replaced:
        n = before.base.by_id.get(ids.get(_handle(expr), ""))
        about = (n.id, n.title, *n.origin) if n else ("", _name(expr), "", "")
        found.append(Application(*about))
    return tuple(found)


def _handle(expr: Any) -> int:
    """A number that identifies an expression of either TVM."""
    # Relay's TVM looks up an attribute that an object lacks in C++, which is slow.
    newer = hasattr(type(expr), "__chandle__")
    return int(expr.__chandle__() if newer else expr.handle.value)


def _name(expr: Any) -> str:
    op = getattr(expr, "op", None)
    return str(getattr(op, "name", "") or getattr(expr, "name_hint", "") or "a value")


def passes_of(ir: str, where: Suspicion) -> tuple[Passes, Passes]:
    """The suspected passes that are on, and those that run after them. Raises EngineError of kind
    "usage" where one has a count, which a report cannot express."""
    for step in where.pipeline:
        if step.enabled and entry_of(ir, step).count(step) is not None:
            message = "A step with a limited number of applications cannot be narrowed."
            raise EngineError("usage", message, str(step), f"Leave {COUNT} out.")
    on = [(i, (s, entry_of(ir, s))) for i, s in enumerate(where.pipeline) if s.enabled]
    after = [one for i, one in on if i > where.last and where.tail and not one[1].looking]
    return [one for i, one in on if where.first <= i <= where.last], after
