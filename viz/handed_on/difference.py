"""How two programs, or two recordings, differ: in one file, in the colours of what changed."""

from dataclasses import replace

from relascope.core.graph import Graph
from relascope.core.identity import carry_pairs
from relascope.viz.compare.changes import coloured
from relascope.viz.compare.match import match
from relascope.viz.compare.runs import ComparedRun, coloured_side
from relascope.viz.handed_on import sheet
from relascope.viz.handed_on.graphs import PLAIN, drawing
from relascope.viz.handed_on.sheet import Section, Sheet, sentence
from relascope.viz.rows import Row
from relascope.viz.rows.step_list import (
    StepChange,
    programs_beside,
    side_text,
    step_differs,
    steps_beside,
)

_TITLES = ("Nodes that differ", "Operators", "Kernels")


def difference_sheet(document: Row, a: ComparedRun, b: ComparedRun) -> Sheet:
    """The file of what `viz.compare.runs.compare` says of two runs: both programs at the first
    difference and at the end, as far as they have graphs, and the steps that differ."""
    about = {side.upper(): side_text(side, document[side]) for side in "ab"}
    file = Sheet(f"{a.label} and {b.label}", about)
    first, end = document["first_difference"], document["end"]
    verdict = [sentence(document["verdict"])]
    if first is not None and document["steps"]:
        verdict.append(sentence(f"After {first['pass'] or 'nothing'}: {first['why']}"))
        if "counts" in first:
            shown = _programs(file, a.graph(first["a"]), b.graph(first["b"]), first)
            file.tab("first", "The first difference", [*verdict, *shown])
    if end is None:
        verdict.append(sentence("One of them has no graph: nodes are not compared.", True))
    else:
        left, right = (run.graph(len(run.steps) - 1) for run in (a, b))
        file.tab("end", "The end", [*verdict, *_programs(file, left, right, end)])
    steps = [r for r in document["steps"] if step_differs(r, first)]
    if steps or not file.tabs:
        file.tab("steps", "Steps", [*verdict, steps_beside(steps, first)])
    return file


def _programs(file: Sheet, left: Graph | None, right: Graph | None, said: Row) -> list[Section]:
    """B's program with what A's alone has, of one IR; of two, one picture below the other."""
    if left is None or right is None:  # of which `said` says nothing either
        return []
    figures, nodes, *others = programs_beside(said)
    matching, ids = match(left, right), list[str | None]()
    pictures = [(g, coloured_side(matching, i)) for i, g in enumerate((left, right))]
    if left.ir == right.ir:
        pairs = {p.right: p.left for p in matching.pairs}
        change = StepChange(left, carry_pairs(left, right, pairs))
        pictures = [(change.with_removed, coloured(change.matched))]
        renamed = change.matched.renamed
        ids = [row["a"] or renamed[row["b"]] for row in said["nodes"]]
    drawn = [
        sheet.graph(file.block(drawing(one, replace(PLAIN, **look)))) for one, look in pictures
    ]
    tables = zip([nodes | {"ids": ids or None}, *others], _TITLES, strict=True)
    return [figures, *drawn, *(table | {"title": title} for table, title in tables)]
