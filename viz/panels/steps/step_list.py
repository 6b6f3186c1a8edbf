"""The list of a pipeline's steps: one compact row each, with a switch, counts and time.

Python side of a small component; `step_list.js` and `step_list.css` are its other half. The page
keeps the pipeline and the selection, the component draws them and tells what was done: chosen,
switched, moved by mouse or keys, taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import streamlit as st

from relascope.engine.protocol.results import StepRecord
from relascope.passes.catalogue import info
from relascope.passes.pipeline import Pipeline
from relascope.viz.rows import formats

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """What one row shows. Counts are None while the passes still run; row 0 is the import.

    Args:
        fixed: it cannot be switched off or taken out.
        looking: its pass is for looking only.
        parameters: those that it was given, as its text has them.
        failure: why it failed, or what a bisection blames it for.
        waiting: it was not run, as only the steps before it were asked for.
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
) -> list[Row]:
    """The rows of a pipeline, the imported program first.

    Args:
        records: one a step that was run, or None while the passes still run.
        imported: nodes of the imported program, where known.
        blamed: what a bisection says of a step, by its index; -1 is the import.
    """
    blamed = blamed or {}
    made = "The program as the frontend made it."
    result = [Row("imported", made, nodes=imported, failure=blamed.get(-1, ""))]
    for index, step in enumerate(pipeline):
        about = info(ir, step)
        row = Row(
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


def step_list(
    rows: Sequence[Row],
    selected: int,
    *,
    key: str,
    on_select: Callable[[int], None],
    on_switch: Callable[[int, bool], None],
    on_move: Callable[[int, int], None],
    on_remove: Callable[[int], None],
) -> None:
    """Draw the rows.

    Args:
        selected: index of the chosen row.
        on_select: called with a row's index when it is chosen, by mouse or arrow keys.
        on_switch: called with a row's index and its new switch.
        on_move: called with a row's index and the one that it shall have.
        on_remove: called with the index of the row to take out.
    """

    def event(name: str) -> Any:
        return (st.session_state.get(key) or {}).get(name)

    def is_row(index: object) -> bool:
        return isinstance(index, int) and 0 <= index < len(rows)

    def selected_changed() -> None:
        if is_row(event("select")):
            on_select(event("select"))

    def switch_changed() -> None:
        switch = event("switch")
        if isinstance(switch, dict):
            on_switch(int(switch["row"]), bool(switch["enabled"]))

    def moved() -> None:
        move = event("move")
        if isinstance(move, dict) and is_row(move["row"]) and is_row(move["to"]):
            on_move(move["row"], move["to"])

    def removed() -> None:
        if is_row(event("remove")):
            on_remove(event("remove"))

    _component()(
        key=key,
        data={"selected": selected, "rows": [asdict(r) | {"idle": r.idle} for r in rows]},
        on_select_change=selected_changed,
        on_switch_change=switch_changed,
        on_move_change=moved,
        on_remove_change=removed,
    )


def _component() -> Any:
    return st.components.v2.component(
        "relascope_step_list",
        html="<div class='list' role='listbox' aria-label='Passes' tabindex='0'></div>"
        "<div class='keys'>Drag a row to move it. <b>↑ ↓</b> choose, <b>Alt ↑ ↓</b> move, "
        "<b>space</b> switches, <b>Delete</b> takes out.</div>",
        css=(_HERE / "step_list.css").read_text(encoding="utf-8"),
        js=(_HERE / "step_list.js").read_text(encoding="utf-8"),
    )
