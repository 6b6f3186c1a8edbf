"""The rows of a pipeline's steps and of a step's changes, for the page and files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from relascope.core.graph import Graph
from relascope.core.identity import Matched, carry_identity
from relascope.engine.protocol.results import StepRecord
from relascope.passes.catalogue import info
from relascope.passes.pipeline import Pipeline, is_tvms
from relascope.viz.compare import changes
from relascope.viz.compare.runs import SURE
from relascope.viz.rows import Row, fields, formats
from relascope.viz.rows.memory import memory_document
from relascope.viz.rows.sections import Section, figures, table

CHANGED = "what; node: op; where it came from, or went: text; module: scope; id"
"""Columns of the nodes that a step changed, as `viz.rows.columns.renamed` takes them."""
_NODES = "what; node: op; what became of it: text; module: scope; matched by: rule; sure"
_DIFFERENT = 20  # rows of a comparison in a terminal


@dataclass(frozen=True)
class StepListRow:
    """One row of the list; row 0 is the import. Counts are None while the passes run."""

    title: str
    summary: str
    enabled: bool = True
    fixed: bool = True  # it cannot be switched off or removed
    looking: bool = False
    parameters: str = ""
    added: int | None = None
    removed: int | None = None
    changed: int | None = None
    nodes: int | None = None
    time: str = ""
    failure: str = ""  # why it failed, or what a bisection blames it for
    waiting: bool = False  # not run, because only steps before it were requested
    error: str = ""  # the program's after it, if known

    @property
    def idle(self) -> bool:
        """Whether it ran and changed nothing."""
        ran = self.enabled and not self.failure
        return ran and (self.added, self.removed, self.changed) == (0, 0, 0)

    @property
    def data(self) -> Row:
        """The row for the list in the browser."""
        tags = (
            ("parameters", self.parameters),
            ("", self.looking and "view only"),
            ("", self.error),
            ("", self.waiting and "not run"),
        )
        summary, bad = self.failure or self.summary, self.failure and "failed"
        return asdict(self) | {"idle": self.idle, "summary": summary, "bad": bad, "tags": tags}


def rows(
    ir: str,
    pipeline: Pipeline,
    records: Sequence[StepRecord] | None,
    imported: int | None,
    blamed: Mapping[int, str] = {},
) -> list[StepListRow]:
    """The rows of a pipeline, the import with its number of nodes first. Records are None while the
    passes run; `blamed` has a bisection's sentences by step (-1: the import)."""
    made = "The program as the frontend made it."
    result = [StepListRow("imported", made, nodes=imported, failure=blamed.get(-1, ""))]
    for index, step in enumerate(pipeline):
        about = info(ir, step)
        row = StepListRow(
            about.title,
            "" if is_tvms(step.name) else about.summary,  # TVM's passes share one
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
            row = replace(row, **fields(done, "added removed changed nodes"))
            if error := done.error:
                row = replace(row, failure=" ".join(filter(None, (error.message, error.hint))))
            elif step.enabled:
                row = replace(row, time=formats.milliseconds(done.seconds))
        result.append(row)
    return result


def figures_beside(was: Row, now: Row) -> list[tuple[str, str]]:
    """Nodes, bytes and FLOPs, before and after if they differ, each with its label."""
    return [
        (" → ".join(dict.fromkeys((write(was[key]), write(now[key])))), name)
        for key, write, name in (
            ("nodes", formats.number, "nodes"),
            ("kernels", formats.number, "kernels"),
            ("parameter_bytes", formats.size, "parameters"),
            ("constant_bytes", formats.size, "constants"),
            ("flops", formats.flops, "FLOPs, estimated"),
        )
        if key in was
    ]


def side_text(side: str, about: Row) -> str:
    """The run on a side of a comparison; `about` is from `viz.compare.runs.compare`."""
    parts = [f"{side.upper()}: {about['label']}", about["engine"].capitalize()]
    if about["seconds"] is not None:
        parts.append(f"{about['steps']} passes in {formats.milliseconds(about['seconds'])}")
    return ", ".join([*parts, *filter(None, [about.get("pipeline")])])


def steps_beside(rows: Iterable[Row], first: Row | None) -> Section:
    """Steps of `viz.compare.runs.compare` beside each other; `first` is the first difference."""
    shown = []
    for row in rows:
        said = ["parts here"] if _is_first(row, first) else []
        said += [f"only {row['only'].upper()}"] if row["only"] else []
        said += [f"took longer in {row['slower'].upper()}, run once"] if row["slower"] else []
        said += [f"fails in {s.upper()}" for s in ("a", "b") if row[f"{s}_failure"]]
        a, b = (None if row[s] is None else 1e3 * row[s] for s in ("a_seconds", "b_seconds"))
        times = {"A ms": a, "B ms": b, "B over A": b / a if a and b is not None else None}
        shown.append({"pass": row["pass"], "what differs": ", ".join(said), **times})
    return table("Steps beside each other", shown, most=_DIFFERENT)


def step_differs(row: Row, first: Row | None) -> bool:
    """Whether two runs differ in a step; arguments as for `steps_beside`."""
    failed = bool(row["a_failure"]) != bool(row["b_failure"])
    return bool(row["only"] or row["slower"] or failed or _is_first(row, first))


def _is_first(row: Row, first: Row | None) -> bool:
    if first is None or first["pass"] != row["pass"]:
        return False
    return all(row[s] is None or row[s] == first[s] for s in ("a", "b"))


def programs_beside(document: Row) -> list[Section]:
    """The sections of `viz.compare.runs.program_document`: figures, nodes, operators, kernels."""
    counts, sides = document["counts"], document["figures"]
    words = {"removed": "only in A", "added": "only in B", "changed": "changed"}
    nodes = [
        {**r, "what": words[r["what"]], "sure": None if r["sure"] is None else 100 * r["sure"]}
        for r in document["nodes"]
    ]
    counted = {
        "operator": [(r["operator"], r["before"], r["after"]) for r in document["operators"]],
        "kernel": [(r["kernel"], r["a"], r["b"]) for r in document["kernels"]],
    }
    return [
        figures(
            *((formats.number(counts[k]), k) for k in ("same", "changed", "removed", "added")),
            (formats.number(counts["unsure"]), f"pairs less than {100 * SURE:.0f} % sure"),
            *figures_beside(sides["a"], sides["b"]),
        ),
        table("", nodes, _NODES, most=_DIFFERENT),
        *(
            table("", [{name: r, "A": a, "B": b, "difference": b - a} for r, a, b in rows])
            for name, rows in counted.items()
        ),
    ]


@dataclass(frozen=True)
class StepChange:
    """How the graph after a step differs from the one before. Derived graphs are cached, because
    drawings are kept by object."""

    before: Graph
    matched: Matched  # the graph after it, under the ids of the one before
    place: str = ""  # identifies the step and all that it depends on

    @classmethod
    def between(cls, before: Graph | None, after: Graph, place: str = "") -> "StepChange":
        """The change from one graph to another; none without a graph before."""
        if before is None:
            return cls(after, Matched(after, {}, *[frozenset[str]()] * 3), place)
        return cls(before, carry_identity(before, after), place)

    @cached_property
    def memory(self) -> Row | None:
        return memory_document(self.matched.graph)

    @cached_property
    def rows(self) -> list[Row]:
        return changes.change_rows(self.before, self.matched)

    @cached_property
    def with_removed(self) -> Graph:
        if not self.matched.removed:
            return self.matched.graph
        return changes.with_removed(self.before, self.matched)

    @property
    def successors(self) -> dict[str, str]:
        """For each node that the step added, a node that it came from, beside which it is drawn."""
        return {r["id"]: r["from"][-1] for r in self.rows if r["what"] == "added" and r["from"]}

    @cached_property
    def figures(self) -> list[tuple[str, str]]:
        return figures_beside(changes.figures(self.before), changes.figures(self.matched.graph))

    @cached_property
    def operators(self) -> list[Row]:
        """How often each operator is called before and after, and the difference."""
        rows = changes.operator_rows(self.before, self.matched.graph)
        return [{**r, "difference": r["after"] - r["before"]} for r in rows]
