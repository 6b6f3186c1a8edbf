"""The functions to build: one, or forward and backward, with their graphs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.core.identity import carry_identity
from relascope.engine.building.options import UNDER_WAY, Function
from relascope.engine.limits import limited
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import Progress, silent
from relascope.engine.protocol.targets import Target
from relascope.engine.server.backend import Backend, Program, SplitProgram
from relascope.engine.server.steps import State


@dataclass(frozen=True)
class Unbuilt:
    """A program ready to be built: as one function, or as forward and backward if it is `split`."""

    backend: Backend
    state: State
    split: SplitProgram | None

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions to build, by phase: "forward" and, if it is split, "backward"."""
        if self.split is None:
            return {"forward": self.state.function}
        split, joint = self.split, self.state.base
        return {n: _half(self.backend, joint, split, n) for n in ("forward", "backward")}


def forward_kernels(
    backend: Backend, program: Program, joint: Graph, exprs: dict[str, Any]
) -> tuple[tuple[str, ...], ...] | None:
    """The nodes of a joint program's forward that become one kernel each if nothing is saved."""
    forward = _half(backend, joint, backend.split(program, joint, exprs, ()), "forward")
    return backend.kernels(forward)


@contextmanager
def building(what: str, request: BuildRequest, progress: Progress = silent) -> Iterator[None]:
    """The unit of a build."""
    UNDER_WAY.progress, UNDER_WAY.name = progress, "program"
    try:
        with limited(what, str(request.pipeline), "engine", request):
            yield
    finally:
        UNDER_WAY.progress = silent


def check_runs_here(target: Target) -> None:
    """Refuse to run code for a device that is not here: it may end the process. Raises EngineError
    of kind "target", which says what is missing."""
    if not target.runs_here:
        message = f"Builds for this target cannot run here. {target.missing}"
        hint = "Build it, and look at its code, with `relascope compile`."
        raise EngineError("target", message, target.name, hint)


def _half(backend: Backend, joint: Graph, split: SplitProgram, name: str) -> Function:
    program = getattr(split, name)
    graph, exprs = backend.to_graph(program, name)
    captures: Mapping[str, str] = dict(zip(split.capture_names, split.captures, strict=True))
    ids = {n.id: captures[n.name] for n in graph if n.name in captures}
    matched = carry_identity(joint, graph, ids)
    return Function(program, name, matched.graph, {matched.renamed[i]: e for i, e in exprs.items()})
