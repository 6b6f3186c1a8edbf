"""The changes of one step of a pipeline as rows: nodes with their origins, counts and sizes."""

from dataclasses import replace
from typing import Any

from relascope.core.graph import Graph, Kind, Node
from relascope.core.identity import Matched, flat
from relascope.passes import cost
from relascope.passes.catalogue import info, recorded
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare.opened import KERNELS
from relascope.viz.compare.origins import Fate, Origin, origins

Row = dict[str, Any]
Program = tuple[Pipeline, int]
"""A pipeline and the step after which a program is asked for."""

_TOLD = 3  # nodes that a sentence names; it counts the rest


def start_of(ir: str, pipeline: Pipeline, index: int) -> int:
    """The step whose graph a step started from; -1 is the imported program. Steps for inspection
    change nothing for later steps, except other steps for inspection."""
    before = index - 1
    if index >= 0 and not info(ir, pipeline.steps[index]).looking:
        while before >= 0 and info(ir, pipeline.steps[before]).looking:
            before -= 1
    return max(before, -1)


def around(ir: str, pipeline: Pipeline, index: int) -> tuple[Program, Program]:
    """What to ask for the programs before and after a step with."""
    if index >= 0 and (step := pipeline.steps[index]).name == recorded.NAME:
        before = Pipeline((recorded.before(step),))
        return recorded.after(before, 0), recorded.after(pipeline, index)
    start = start_of(ir, pipeline, index)
    return (pipeline.upto(start), start), (pipeline.upto(index), index)


def coloured(matched: Matched) -> dict[str, Any]:
    """Arguments of a `View` that colour what a step added, changed and removed."""
    return {
        "highlight": {
            **dict.fromkeys(matched.changed, "changed"),
            **dict.fromkeys(matched.added, "added"),
            **dict.fromkeys(matched.removed, "removed"),
        },
        "shines_through": ("changed", "removed", "added"),
        "colours": "What changed",
    }


def change_rows(before: Graph, matched: Matched) -> list[Row]:
    """One row for each node that a step added, removed or changed, with its origin. `from` are the
    nodes that an added one came from, or that a changed one reads now; `to` are those that replace
    a removed one. `sure` is false if only its place supports the origin."""
    old, new = ({n.id: n for n in flat(graph)} for graph in (before, matched.graph))
    return [
        {
            "id": o.id,
            "what": o.what,
            "op": (old if o.what == "removed" else new)[o.id].title,
            "scope": (old if o.what == "removed" else new)[o.id].scope,
            "to" if o.what == "removed" else "from": list(o.nodes),
            "how": o.how.value,
            "sure": o.sure,
            "text": _sentence(o, old, new),
        }
        for o in origins(before, matched)
    ]


_ALONE = {
    Fate.CHANGED: "",
    Fate.DEAD: "dead: nothing reads it",
    Fate.ARGUMENT: "a new argument of the program",
}
"""Texts that name no other nodes; for a changed node, the difference."""
_BEGIN = {Fate.LEFT_OUT: "left out: its readers read", Fate.NEW: "new: it reads"}


def _sentence(origin: Origin, old: dict[str, Node], new: dict[str, Node]) -> str:
    if origin.how in _ALONE:
        return _ALONE[origin.how] or origin.detail
    first, other = (new, old) if origin.what == "removed" else (old, new)
    scope = (other if origin.id in other else first)[origin.id].scope
    titles = [
        f"{n.title} in {n.scope}" if n.scope not in ("", scope) and n.kind is Kind.CALL else n.title
        for n in [first.get(i) or other[i] for i in origin.nodes]
    ]
    named = ", ".join(titles[:_TOLD])
    named += f" and {len(titles) - _TOLD} more" if len(titles) > _TOLD else ""
    if origin.how is Fate.FOLDED and titles == ["constant"]:
        named = "a constant"
    text = f"{_BEGIN.get(origin.how, origin.how.value)} {named}"
    return text if origin.sure else f"{text} (going by its place)"


def figures(graph: Graph) -> Row:
    """Nodes, bytes of parameters and of constants, and estimated FLOPs (`passes.cost`); None if
    operators became kernels whose FLOPs the compiler could not count."""
    nodes = [*flat(graph)]
    priced = not any(n.attrs.get("call") in KERNELS and "flops" not in n.attrs for n in nodes)
    parameters, constants = (
        sum(n.bytes or 0 for n in nodes if n.kind is kind)
        for kind in (Kind.PARAMETER, Kind.CONSTANT)
    )
    flops = sum(cost.flops_of(graph).values()) if priced else None
    sizes = {"parameter_bytes": parameters, "constant_bytes": constants}
    return {"nodes": len(graph), **sizes, "flops": flops}


def operator_rows(before: Graph, after: Graph) -> list[Row]:
    """One row for each operator: its calls before and after; different ones first."""
    was, now = before.operators, after.operators
    rows = [
        {"operator": op, "before": was.get(op, 0), "after": now.get(op, 0)}
        for op in dict.fromkeys((*was, *now))
    ]
    return sorted(rows, key=lambda r: (r["before"] == r["after"], -r["before"] - r["after"]))


def with_removed(before: Graph, matched: Matched) -> Graph:
    """The graph after a step, with the nodes that it removed behind their inputs. No remaining node
    reads them: the picture shows what was removed, not how the program ran."""
    nodes = list(matched.graph.nodes)
    place = {n.id: n.id for n in nodes}
    for node in nodes:
        if node.body is not None:
            place.update({inner.id: node.id for inner in flat(node.body)})
    for node in before.nodes:
        if node.id in matched.removed:
            kind = Kind.CALL if node.kind is Kind.FUNCTION else node.kind
            inputs = tuple(
                place[i] if isinstance(i, str) else i
                for i in node.inputs
                if not isinstance(i, str) or i in place
            )
            place[node.id] = node.id
            nodes.append(replace(node, kind=kind, inputs=inputs, body=None))
    return matched.graph.with_nodes(nodes)
