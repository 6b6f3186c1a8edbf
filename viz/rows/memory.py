"""Memory of a function's plan and of a training step, for page, file and terminal."""

from collections.abc import Sequence
from math import ceil

from relascope.core.graph import Graph
from relascope.passes.cuts.cut import Cut
from relascope.passes.cuts.joint import original
from relascope.passes.cuts.lifetimes import AGAIN
from relascope.passes.memory_plan import MemoryPlan, PlannedTensor, memory_plan, plan_findings
from relascope.viz.rows import Row, fields, sections
from relascope.viz.rows.formats import counted, size

_TENSORS = "written by; storage; tensor: type; bytes; from step: from; to step: to; last used by"
_HELD = (
    "name: title; line?: line; what: role; bytes; held from node: begin; next read by: next; "
    "held to: end; made in: scope; from: source"
)
_WIDE, _HIGH = 64, 40  # columns and storages of the picture in a terminal
_MARKS = "·█▓!"  # free, held by one and by the next, red


def memory_document(graph: Graph) -> Row | None:
    """The document of a graph's memory plan; None if it has none. Steps and storages are counted
    from 1. A tensor is held from its allocation, step "from", to its last use, "to"; a result, to
    the step after the last. "id" is the node that writes it. Sizes are in bytes, None if unknown;
    sums leave those out. "faults" are ranges of steps in which two tensors (by their indices) share
    a piece of a storage, or one whose branch did not allocate it."""
    plan = memory_plan(graph)
    if plan is None:
        return None
    names = [graph.by_id[i].title for i in plan.steps]
    tensors = [_tensor(plan, names, t) for t in plan.tensors]
    faults = [*(pair[:2] for pair in plan.overlaps), *((at,) for at in plan.astray)]
    sizes, (peak, step) = [size for size, _ in plan.storages], plan.peak()
    held = [t.type.bytes for t in plan.tensors]
    return {
        "storages": [{"storage": k, "bytes": b} for k, b in enumerate(sizes, 1)],
        "tensors": tensors,
        "steps": [{"id": i, "name": n} for i, n in zip(plan.steps, names, strict=True)],
        "storage_bytes": sum(filter(None, sizes)),
        "tensor_bytes": sum(filter(None, held)),
        "peak_bytes": peak,
        "peak_step": step + 1,
        "open_sizes": sum(b is None for b in (*sizes, *held)),
        "open": [*{d: 0 for t in plan.tensors for d in t.type.shape if isinstance(d, str)}],
        "elsewhere": plan.elsewhere,
        "findings": plan_findings(plan, graph),
        "faults": [
            {
                "storage": tensors[of[0]]["storage"],
                "tensors": list(of),
                "from": plan.tensors[of[-1]].write + 1,
                "to": min(tensors[at]["to"] for at in of),
            }
            for of in faults
        ],
    }


def _tensor(plan: MemoryPlan, names: Sequence[str], tensor: PlannedTensor) -> Row:
    used = bool(tensor.uses)
    return {
        "id": plan.steps[tensor.write] if used else None,
        "written by": names[tensor.write] if used else "nothing",
        "storage": tensor.storage + 1,
        "type": str(tensor.type),
        "bytes": tensor.type.bytes,
        "from": tensor.begin + 1,
        "to": (len(names) if tensor.results else tensor.end) + 1,
        "last used by": "a result" if tensor.results else names[tensor.end] if used else "nothing",
    }


def memory_sections(document: Row | None) -> list[sections.Section]:
    """Faults, sums, the storages over the steps, and the tensors; nothing without a plan."""
    if document is None:
        return []
    tensors, title = document["tensors"], "Storages over the steps"
    note = "Each bar is a tensor, from its allocation to its last use; results stay to the end."
    note += " Red (!) marks tensors that overlap, or have no storage." if document["faults"] else ""
    return [
        *(sections.sentence(text, True) for text in document["findings"]),
        sections.sentence(_summary(document)),
        sections.chart(title, "storages", document, note=note, text=_picture(document)),
        sections.table("Tensors", tensors, _TENSORS, [t["id"] for t in tensors], most=20),
    ]


def _summary(document: Row) -> str:
    held, taken, peak = (document[f"{of}_bytes"] for of in ("tensor", "storage", "peak"))
    tensors, storages = len(document["tensors"]), len(document["storages"])
    text = f"{counted(tensors, 'tensor')} of {size(held)} in {counted(storages, 'storage')} of "
    text += size(taken)
    if tensors == storages:
        text += ": none is used again."
    elif document["open_sizes"] or held <= taken:
        text += "."
    else:
        text += f": reuse saves {size(held - taken)}, {1 - taken / held:.0%}."
    if peak:
        step = document["peak_step"]
        name = document["steps"][step - 1]["name"]
        text += f" At most {size(peak)} are held at once, at step {step}, {name}."
    if document["open_sizes"]:
        of = ", ".join(d for d in document["open"] if d != "?")
        text += f" Not counted: {counted(document['open_sizes'], 'size')} of tensors and storages"
        text += f" that depend on {of}." if of else " that are open."
    if calls := document["elsewhere"]:
        text += f" Not counted: what functions allocate in {counted(calls, 'call')}."
    return text


def _picture(document: Row) -> str:
    """Storages as lines, steps as columns, several in one if there are many."""
    steps, storages = len(document["steps"]) + 1, document["storages"]
    wide = min(steps, _WIDE)
    lines = {s["storage"]: "·" * wide for s in storages}
    marks = dict.fromkeys(lines, 1)
    bars = sorted(document["tensors"], key=lambda t: t["from"])
    for piece, red in [*((b, 0) for b in bars), *((f, 3) for f in document["faults"])]:
        at = piece["storage"]
        first, last = ((piece[end] - 1) * wide // steps for end in ("from", "to"))
        bar = _MARKS[red or marks[at]] * (last + 1 - first)
        lines[at] = lines[at][:first] + bar + lines[at][last + 1 :]
        marks[at] = 3 - marks[at]
    title = f"steps 1 to {steps - 1}, and after"
    rows = [
        {"storage": str(s["storage"]), "size": size(s["bytes"]), title: lines[s["storage"]]}
        for s in storages[:_HIGH]
    ]
    more = len(storages) - len(rows)
    return sections.text_table(rows) + (f"\n{more} more; --json has all." if more else "")


MEASURE = "Measure the peak with `captures --measure`, or with *Measure it* on the page."


def measured_peak(cut: Cut) -> Row:
    """The measured peak of a cut as a field beside "peak_bytes"; nothing where there is none."""
    peaks = cut.joint.peaks
    return {"measured_peak_bytes": peaks[cut.marked]} if cut.marked in peaks else {}


def peak_words(row: Row) -> str:
    """A cut's peak as estimated, as measured, and over its bound, from the fields of its row."""
    estimated, known = row.get("peak_bytes"), "measured_peak_bytes" in row
    words = [] if estimated is None else [f"{size(estimated)} estimated"]
    words.append(f"{size(row['measured_peak_bytes'])} measured" if known else "not measured")
    if least := row.get("least_peak_bytes"):
        words.append(f"within {ceil(100 * (estimated / least - 1))} % of the least possible")
    return ", ".join(words)


def cut_peak_words(cut: Cut) -> str:
    return peak_words({"peak_bytes": cut.peak_bytes, **measured_peak(cut)})


def live_document(cut: Cut) -> Row:
    """The bytes that a training step holds while each node runs, wherever they change: "bytes" in
    total, "captured", and computed "again". Nodes are counted in each phase; 0 is before the first.
    "at_peak" is `live_at` the first node with the most bytes."""
    lived = cut.lifetimes
    roles = "captured", AGAIN
    held = [*zip(lived.bytes(), *map(lived.bytes, roles), strict=True)]
    changes = []
    for step, now in enumerate(held):
        if now != (held[step - 1] if step else (0, 0, 0)):
            late = step > lived.forward
            where = "backward" if late else "forward", step - late * lived.forward
            names = "phase", "step", "id", "bytes", *roles
            found = *where, original(lived.order[step - 1]) if step else None, *now
            changes.append(dict(zip(names, found, strict=True)))
    peak = max(range(len(held)), key=lambda step: held[step][0])
    return {**fields(lived, "forward backward"), "changes": changes, "at_peak": live_at(cut, peak)}


def live_at(cut: Cut, step: int) -> Row:
    """The tensors held while a node runs, the largest first, each with the numbers of the nodes
    that write it, and read it next and last, or None; `step` is counted through both phases."""
    lived, by_id = cut.lifetimes, cut.joint.graph.by_id
    node = by_id[original(lived.order[step - 1])] if step else None
    tensors = [
        {
            **fields(one, "role bytes begin end"),
            **fields(by_id[original(one.id)], "id title scope source line"),
            "next": one.next_read(step),
        }
        for one in lived.at(step)
    ]
    return {
        "step": step,
        "of": len(lived.order),
        "id": node and node.id,
        "name": node.title if node else "the masks",
        "bytes": sum(t["bytes"] for t in tensors),
        "tensors": tensors,
    }


def live_section(document: Row, peak: bool = True) -> sections.Section:
    """A table of `live_at`, at the peak or at another node."""
    where = f"{document['name']}, node {document['step']} of {document['of']}"
    note = f"{size(document['bytes'])} are held while the step runs {where}."
    tensors = document["tensors"]
    title = "Held at the peak" if peak else f"Held at node {document['step']}"
    return sections.table(title, tensors, _HELD, [t["id"] for t in tensors], note, most=10)
