"""The rows of a pipeline's steps, as the page lists them and a file that is handed on does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relascope.engine.protocol.results import StepRecord
from relascope.passes.catalogue import info
from relascope.passes.pipeline import Pipeline
from relascope.viz.rows import formats


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
