"""The functions of a program that is built, with their graphs: one, or forward and backward."""

from __future__ import annotations

from typing import Any

from relascope.core.graph import Graph
from relascope.core.identity import carry_identity
from relascope.engine.building.options import Function
from relascope.engine.server.backend import Backend, Program, SplitProgram


def split_functions(backend: Backend, joint: Graph, split: SplitProgram) -> dict[str, Function]:
    """The forward and the backward of a program that was split, by those words."""
    return {n: _function(backend, joint, split, n) for n in ("forward", "backward")}


def _function(backend: Backend, joint: Graph, split: SplitProgram, name: str) -> Function:
    """One of the two; an argument that is handed a capture has the capture's id."""
    program = getattr(split, name)
    graph, exprs = backend.to_graph(program, name)
    handed = dict(zip(split.capture_names, split.captures, strict=True))
    known = {n.id: handed[n.name] for n in graph if n.name in handed}
    matched = carry_identity(joint, graph, known)
    return Function(program, name, matched.graph, {matched.renamed[i]: e for i, e in exprs.items()})


def forward_kernels(
    backend: Backend, program: Program, joint: Graph, exprs: dict[str, Any]
) -> tuple[tuple[str, ...], ...] | None:
    """The nodes of a joint program's forward that become one kernel each where nothing is saved."""
    forward = _function(backend, joint, backend.split(program, joint, exprs, ()), "forward")
    return backend.kernels(forward)
