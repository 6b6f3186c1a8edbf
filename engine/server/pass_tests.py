"""Running the examples in the user's pass file as tests."""

import difflib
import math
from dataclasses import replace
from typing import Any

import numpy as np

from relascope.core.errors import EngineError
from relascope.engine.building.explain import explain
from relascope.engine.faults.replay import Values, differences
from relascope.engine.protocol.results import ExampleRun
from relascope.engine.server.backend import Backend
from relascope.engine.server.examples import Make, example_of
from relascope.engine.server.steps import check_kind
from relascope.passes.catalogue import PassInfo
from relascope.passes.catalogue.example import draw
from relascope.passes.pipeline import Step


def tested(
    backend: Backend, entry: PassInfo, name: str, before: Make, after: Make | None
) -> ExampleRun:
    """Run the user's own pass on one of its examples; compare the module with the file's, except
    for variables' names, and results with those before the pass, in two precisions."""
    run = ExampleRun(entry.name, name, expected=after is not None)
    said: list[str] = []
    for dtype in _LIMITS:
        try:
            example = example_of(backend, before, dtype)
            result = entry.applied(example.program, Step(entry.name, True, example.params))
            check_kind(entry.title, example.program, result)
            backend.replay.check_formed(result.mod)
            expected = None if after is None else example_of(backend, after, dtype).program
            other = expected is not None and not backend.same(expected.mod, result.mod)
            if other and not run.diff:
                said.append("the pass does not make the program that the file expects")
                run = replace(run, diff=_diff(backend, expected, result))
            if not example.differs:
                error, kind = _error(backend, example.program, result)
                run = replace(run, max_rel=error, dtype=kind)
                words = f"results differ by {error:.1e} of their scale in {kind}"
                if not error <= _LIMITS[kind] and words not in said:
                    said.append(words)
        except EngineError as error:
            return replace(run, said=(*said, error.message))
        except (Exception, SystemExit) as error:
            fault = explain(error, entry.name)
            return replace(run, said=(*said, f"in {dtype}: {fault.message}"))
    return replace(run, said=tuple(said))


_LIMITS = {"float32": 1e-5, "float64": 1e-10}


def _diff(backend: Backend, expected: Any, made: Any) -> str:
    """What differs between two small programs, in their shortened text."""
    was, now = (
        [line for f in backend.example_text(p) if not f.kernel for line in f.whole]
        for p in (expected, made)
    )
    names = "after, as the file expects", "after the pass"
    lines = list(difflib.unified_diff(was, now, *names, lineterm=""))
    return "\n".join(lines) or "The difference is in types, attributes or kernels, not shown here."


def _error(backend: Backend, before: Any, after: Any) -> tuple[float, str]:
    """The largest difference of results relative to their scale, infinite if their number differs;
    and its dtype."""
    arrays = {n: v.numpy() for n, v in {**after.params, **before.params}.items()}
    graphs = [backend.to_graph(p)[0] for p in (before, after)]
    for node in (n for g in graphs for n in g if n.id in g.inputs):
        of = node.outputs[0]
        shape = [d if isinstance(d, int) else 1 for d in of.shape]
        if node.name not in arrays:
            arrays[node.name] = draw(node.name, *shape, dtype=of.dtype)
    first, second = (_results(backend, p, arrays) for p in (before, after))
    kind = "float64" if all(r.dtype != np.float32 for r in first) else "float32"
    if len(first) != len(second):
        return math.inf, kind
    return max((d.max_rel for d in differences(first, second, 0.0)), default=0.0), kind


def _results(backend: Backend, program: Any, arrays: Values) -> list[np.ndarray]:
    run = backend.replay.runner(program.mod, arrays, "llvm", False)
    run()
    return run.results()
