"""The rows of a pipeline's steps and what one changed, as the page and a file show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from relascope.core.graph import Graph
from relascope.core.identity import Matched, carry_identity
from relascope.engine.protocol.results import StepRecord
from relascope.passes.catalogue import info
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare import changes
from relascope.viz.rows import Row, formats

CHANGED = "what; node: op; where it came from, or went: text; module: scope; id"
"""Columns of the nodes that a step changed, as `viz.rows.columns.renamed` takes them."""


@dataclass(frozen=True)
class StepListRow:
    """What one row shows. Counts are None while the passes still run; row 0 is the import.

    Args:
        fixed: it cannot be switched off or taken out.
        looking: its pass is for looking only.
        parameters: those that it was given, as its text has them.
        failure: why it failed, or what a bisection blames it for.
        waiting: it was not run, as only the steps before it were asked for.
        error: after it, against what the program computes, where that is known.
    """

    title: str
    summary: str
    enabled: bool = True
    fixed: bool = True
    looking: bool = False
    parameters: str = ""
    added: int | None = None
    removed: int | None = None
    changed: int | None = None
    nodes: int | None = None
    time: str = ""
    failure: str = ""
    hidden: bool = False
    waiting: bool = False
    error: str = ""

    @property
    def idle(self) -> bool:
        """Whether it ran and changed nothing."""
        return (self.added, self.removed, self.changed) == (0, 0, 0)


def rows(
    ir: str,
    pipeline: Pipeline,
    records: Sequence[StepRecord] | None,
    imported: int | None,
    blamed: Mapping[int, str] | None = None,
) -> list[StepListRow]:
    """The rows of a pipeline, the imported program first.

    Args:
        records: one a step that was run, or None while the passes still run.
        imported: nodes of the imported program, where known.
        blamed: what a bisection says of a step, by its index; -1 is the import.
    """
    blamed = blamed or {}
    made = "The program as the frontend made it."
    result = [StepListRow("imported", made, nodes=imported, failure=blamed.get(-1, ""))]
    for index, step in enumerate(pipeline):
        about = info(ir, step)
        row = StepListRow(
            about.title,
            about.summary,
            step.enabled,
            about.required,
            about.looking,
            ", ".join(f"{k}={v}" for k, v in step.params),
            failure=blamed.get(index, ""),
        )
        if records is not None and index >= len(records):
            row = replace(row, waiting=True)
        elif records is not None:
            done = records[index]
            failure = done.error
            row = replace(
                row,
                added=done.added,
                removed=done.removed,
                changed=done.changed,
                nodes=done.nodes,
                time=formats.milliseconds(done.seconds) if step.enabled and not failure else "",
                failure=" ".join(filter(None, (failure.message, failure.hint)))
                if failure
                else row.failure,
            )
        result.append(row)
    return result


def figures_beside(was: Row, now: Row) -> list[tuple[str, str]]:
    """Nodes, bytes and FLOPs, before and after where they differ, each with what it is of."""
    return [
        (" → ".join(dict.fromkeys((write(was[key]), write(now[key])))), name)
        for key, write, name in (
            ("nodes", formats.number, "nodes"),
            ("parameter_bytes", formats.size, "parameters"),
            ("constant_bytes", formats.size, "constants"),
            ("flops", formats.flops, "FLOPs, estimated"),
        )
    ]


@dataclass(frozen=True)
class StepChange:
    """How the graph after a step differs from the one that it started from.

    What is made of that is the same object every time: drawings are kept by it.

    Args:
        before: the graph that the step started from.
        matched: the one after it, under the ids of the one before.
        place: names the step, and all that it depends on.
    """

    before: Graph
    matched: Matched
    place: str = ""

    @classmethod
    def between(cls, before: Graph | None, after: Graph, place: str = "") -> StepChange:
        """From one graph to another; without one before, nothing changed."""
        if before is None:
            return cls(after, Matched(after, {}, *[frozenset[str]()] * 3), place)
        return cls(before, carry_identity(before, after), place)

    @cached_property
    def rows(self) -> list[Row]:
        """As of `viz.compare.changes.change_rows`."""
        return changes.change_rows(self.before, self.matched)

    @cached_property
    def with_removed(self) -> Graph:
        """The graph after the step, with what it removed."""
        if not self.matched.removed:
            return self.matched.graph
        return changes.with_removed(self.before, self.matched)

    @property
    def successors(self) -> dict[str, str]:
        """For nodes that the step added, one each that it came from: they stand by that one."""
        return {r["id"]: r["from"][-1] for r in self.rows if r["what"] == "added" and r["from"]}

    @cached_property
    def figures(self) -> list[tuple[str, str]]:
        """As of `figures_beside`."""
        return figures_beside(changes.figures(self.before), changes.figures(self.matched.graph))

    @cached_property
    def operators(self) -> list[Row]:
        """How often each operator is called before and after, and the difference."""
        rows = changes.operator_rows(self.before, self.matched.graph)
        return [{**r, "difference": r["after"] - r["before"]} for r in rows]
