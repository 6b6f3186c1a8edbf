"""Runs a pass on its example, and shortens the text that shows what it did.

Each engine's `example_text` leaves out types and attributes that are not set. This module leaves
out the head of "main", where that is the only function and keeps its arguments, and kernels that
the pass does not change."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.identity import carry_identity
from relascope.engine.protocol.results import FunctionText, PassExample
from relascope.engine.server.backend import Backend
from relascope.passes.catalogue import PassInfo, user
from relascope.passes.catalogue.example import Example
from relascope.passes.pipeline import Step
from relascope.passes.program import Program

Make = Callable[..., Any]


def run_example(backend: Backend, entry: PassInfo) -> PassExample | None:
    """Run a pass on its example, the user's own pass on its first; None where it has none."""
    own = (partial(example_of, backend, before) for before, _ in user.examples(entry).values())
    make = next(own, None if entry.own_file else backend.examples.get(entry.name))
    if make is None:
        return None
    example = make("float32")
    step = Step(entry.name, True, example.params)
    after = entry.applied(example.program, step)
    old, new = backend.example_text(example.program), backend.example_text(after)
    heads = [{f.name: f.head for f in functions}.get("main") for functions in (old, new)]
    same = heads[0] == heads[1]
    texts = _side(old, new, same), _side(new, old, same)
    graph, _ = backend.to_graph(example.program)
    matched = carry_identity(graph, backend.to_graph(after)[0])
    types = tuple({n.name: n.outputs[0] for n in graph if n.id in graph.inputs}.items())
    return PassExample(str(step), types, *texts, graph, matched.graph, example.differs)


def _side(functions: Sequence[FunctionText], others: Sequence[FunctionText], same: bool) -> str:
    shown = [f for f in functions if not (f.kernel and f in others)]
    if same and len(functions) == 1:
        return "\n".join(functions[0].lines)
    return "\n".join(line for f in shown for line in f.whole)


def example_of(backend: Backend, make: Make, dtype: str) -> Example:
    """The example of what the user's function returns: an example, a program, a module, or what
    "main" computes. Raises EngineError of kind "pass" where it returns None."""
    parts: Any = backend.parts(dtype)
    made = make(parts)
    if isinstance(made, Example):
        return made
    if isinstance(made, Program):
        return Example(made)
    if type(made).__name__ == "IRModule":
        return Example(parts.of_module(made))
    if made is None:
        message = f"{getattr(make, '__name__', 'The function')} returns nothing."
        hint = "Return the values that the program computes, a module, or new.example(…)."
        raise EngineError("pass", message, "", hint)
    return Example(parts.program(made))
