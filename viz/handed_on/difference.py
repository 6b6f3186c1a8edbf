"""The differences of two programs or recordings in one file, in the colours of changes."""

from relascope.core.graph import Graph
from relascope.viz.compare.match import match
from relascope.viz.compare.runs import ComparedRun, coloured_side, outer_nodes
from relascope.viz.drawing.drawing import View
from relascope.viz.handed_on import sheet
from relascope.viz.handed_on.graphs import drawing
from relascope.viz.handed_on.sheet import Section, Sheet, sentence
from relascope.viz.rows import Row
from relascope.viz.rows.step_list import programs_beside, side_text, step_differs, steps_beside


def difference_sheet(document: Row, a: ComparedRun, b: ComparedRun) -> Sheet:
    """The file of a document of `viz.compare.runs.compare`: both programs at the first difference
    and at the end, if they have graphs, and the steps that differ."""
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
        verdict.append(sentence("One program has no graph, so nodes are not compared.", True))
    else:
        left, right = (run.graph(len(run.steps) - 1) for run in (a, b))
        file.tab("end", "The end", [*verdict, *_programs(file, left, right, end)])
    steps = [r for r in document["steps"] if step_differs(r, first)]
    if steps or not file.tabs:
        file.tab("steps", "Steps", [*verdict, steps_beside(steps, first)])
    return file


def _programs(file: Sheet, left: Graph | None, right: Graph | None, said: Row) -> list[Section]:
    """Both programs beside each other, as on the page, and their differences."""
    if left is None or right is None:
        return []
    figures, nodes, *others = programs_beside(said)
    matching, sides = match(left, right), (left, right)
    looks = (View(details=False, **coloured_side(matching, i)) for i in range(2))
    blocks = (drawing(one, look) for one, look in zip(sides, looks, strict=True))
    drawn = [sheet.graph(file.block(block)) for block in blocks]
    inside = list(zip("ab", map(outer_nodes, sides), strict=True))
    ids = [[outer.get(row[side], row[side]) for side, outer in inside] for row in said["nodes"]]
    titles = "Nodes that differ", "Operators", "Kernels"
    tables = zip([nodes | {"ids": ids}, *others], titles, strict=True)
    return [figures, *drawn, *(table | {"title": title} for table, title in tables)]
