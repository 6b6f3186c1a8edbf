"""The forward and backward programs of a split, as graphs over the joint graph's nodes."""

from __future__ import annotations

from typing import Any

from relascope.core.graph import Graph
from relascope.core.identity import carry_identity
from relascope.engine.server.backend import Backend, Halves, Program


def half_graph(
    backend: Backend, joint: Graph, halves: Halves, name: str
) -> tuple[Graph, dict[str, Any]]:
    """The graph of one half, and the IR's expressions, by the ids of the joint graph's nodes.

    An argument that is handed a capture has the capture's id.
    """
    graph, exprs = backend.to_graph(getattr(halves, name), name)
    captured = dict(zip(halves.saved, halves.captures, strict=True))
    known = {n.id: captured[n.name] for n in graph if n.name in captured}
    matched = carry_identity(joint, graph, known)
    return matched.graph, {matched.renamed[i]: e for i, e in exprs.items()}


def forward_kernels(
    backend: Backend, program: Program, joint: Graph, exprs: dict[str, Any]
) -> tuple[tuple[str, ...], ...] | None:
    """The nodes of a joint program's forward that become one kernel each where nothing is saved."""
    halves = backend.split(program, joint, exprs, ())
    _, inside = half_graph(backend, joint, halves, "forward")
    return backend.kernels(halves.forward, "forward", inside)
