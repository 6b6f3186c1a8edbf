"""What the gate's commands print where a person reads it."""

from typing import Any

from relascope.viz.rows.formats import flops, size
from relascope.viz.rows.gate.pipelines import sections
from relascope.viz.rows.sections import text, text_table

Document = dict[str, Any]


def baseline(document: Document) -> str:
    """What `baseline` says: what is held from now on, in a few figures."""
    made, kernels = document["made"], document["kernels"]
    operators = sum(sum(ops.values()) for ops in document["operators"].values())
    error, build = document["error"], document["compile"]["build"]
    counts = [f"{operators} operators"]
    counts += [] if kernels is None else [f"{len(kernels)} kernels"]
    counts.append(f"{flops(document['flops']['total'])} FLOPs")
    taken = document["memory"]["built"]
    counts += [] if taken is None else [f"{size(taken)} of memory"]
    off = f"{error['worst']} is off by {float(error['max_rel']):.1e} (limit {error['limit']:.0e})"
    passes = sum(p["best_ms"] for p in document["compile"]["passes"].values())
    lines = [
        f"{document['model']} ({document['engine']}), target {made['target']}",
        ", ".join(counts),
        f"{error['verdict']}: {off}",
        f"passes {passes:.3g} ms, build {build['best_ms']:.3g} ms (best of {build['runs']} runs)",
    ]
    for name, one in document.get("captures", {}).items():
        lines.append(f"{name}: {one['count']} captures, {size(one['bytes'])}")
    for phase, one in document.get("speed", {}).items():
        words = phase.replace("_", " and ")
        lines.append(f"{words}: {one['ratio']:.2f} of eager's time ({one['q1']} to {one['q3']})")
    return "\n".join([*lines, f"Written to {document['file']}."])


def differences(document: Document) -> str:
    """What `check --baseline` says: a sentence a difference, and what comes of them."""
    head = f"{document['model']} ({document['engine']}), against {document['baseline']}"
    failing = set(document["failing"])
    lines = [head, *document["notes"]]
    for one in document["differences"]:
        better = " (better)" if one["verdict"] == "better" else ""
        aside = "" if better or one["sentence"] in failing else " (not in --fail-on)"
        lines.append(f"{one['sentence']}{better}{aside}")
    if not document["differences"]:
        lines.append("Nothing differs from the baseline.")
    elif document["updated"]:
        lines.append("The baseline is as it is now.")
    elif not failing:
        lines.append("Nothing of that fails: --update takes it into the baseline.")
    else:
        count = f"{len(failing)} differences fail" if len(failing) > 1 else "One difference fails"
        lines.append(f"{count}; --update takes what is meant into the baseline.")
    return "\n".join(lines)


def bulk(document: Document) -> str:
    """What `bulk` says: a line a model and pipeline, then the culprits."""
    lines = [{**r, "culprit": ", ".join(r["culprits"])} for r in document["rows"]]
    parts = [text_table(lines, "model; pipeline; outcome; culprit; seconds")]
    if document["culprits"]:
        columns = "pass; breaks; slows; rounds; suspected; models"
        parts.append(text_table(document["culprits"], columns))
    bad = (r for r in document["rows"] if r["outcome"] != "right")
    parts.append("\n".join(f"{r['model']}: {r['verdict']}" for r in bad))
    counts = ", ".join(f"{n} {outcome}" for outcome, n in document["outcomes"].items())
    earlier = f"; {document['resumed']} of them from before" if document["resumed"] else ""
    return "\n\n".join([*filter(None, parts), f"{counts}{earlier}."])


def pipelines(document: Document) -> str:
    """What `pipelines` says: a line a pipeline, then the culprits."""
    head = f"{document['model']} ({document['engine']}), against {document['against']}"
    table, *said = sections(document)
    return "\n\n".join([head, text([table]), "\n".join(text([s]) for s in said)])
