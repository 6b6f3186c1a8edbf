"""The spans of a Relay program: keys into `RelayProgram.provenance`.

The importer's keys are `scope|operator|ordinal`; the ordinal counts PyTorch's operators in the
order in which PyTorch executes them.
"""

from collections.abc import Mapping
from typing import Any

import tvm

from relascope.core.graph import NodeOrigin
from relascope.passes.relay.ir.rewrite import op_name

NEAR = "near|"
"""Begins the key of a call in an operator's place whose result may differ from the operator's; see
`passes.relay.ir.span_recovery`."""


def key(expr: Any) -> str:
    """The key in an expression's span, "" without one."""
    span = getattr(expr, "span", None)
    return span.source_name.name if span is not None else ""


def execution_order(expr: Any) -> int:
    """The position, from 0, in PyTorch's order of execution of the operator that an expression came
    from. Raises ValueError if its span has no number."""
    ordinal = key(expr).rpartition("|")[2]
    if not ordinal.isdigit():
        raise ValueError(f"the span {key(expr)!r} does not say when PyTorch executed it")
    return int(ordinal)


def imported_order(expr: Any) -> int | None:
    """The same for expressions of the importer; None for gradients and without a number; -1 - n for
    expressions that a pass made from number n, whose values may differ."""
    where, _, ordinal = key(expr).rpartition("|")
    if where.removeprefix(NEAR).startswith("gradient|") or not ordinal.isdigit():
        return None
    return -1 - int(ordinal) if where.startswith(NEAR) else int(ordinal)


class Spans:
    """Makes spans for new expressions of a program; `provenance` grows by their keys."""

    def __init__(self, provenance: Mapping[str, NodeOrigin]) -> None:
        self.provenance = dict(provenance)

    def of_gradient(self, expr: Any) -> Any:
        """A span for the gradient of an expression, or None if its own origin is unknown."""
        origin = self.provenance.get(key(expr), NodeOrigin())
        return self._span(f"gradient|{key(expr)}", origin.of_gradient) if any(origin) else None

    def where(self, call: Any) -> str:
        """Operator, source and module of a call, for an error."""
        return self.provenance.get(key(call), NodeOrigin()).named(op_name(call))

    def of_parameter(self, name: str) -> Any:
        """A span for the gradient of a parameter, in the parameter's module."""
        return self._span(f"gradient|{name}", NodeOrigin(name.rpartition(".")[0]))

    def _span(self, name: str, origin: NodeOrigin) -> Any:
        self.provenance[name] = origin
        return tvm.ir.Span(tvm.ir.SourceName(name), 0, 0, 0, 0)
