"""The commands' output for people, each made from the document of --json."""

import shlex

from relascope.engine.protocol.fault import OF_TEST
from relascope.viz.rows import Row, fault, sections, step_list, tables, timings
from relascope.viz.rows import Row as Document
from relascope.viz.rows.artefact import compiled_sections
from relascope.viz.rows.formats import example_block, flops, sandbox_words, size, work_text
from relascope.viz.rows.gate import comment
from relascope.viz.rows.gate.pipelines import sections as pipeline_sections
from relascope.viz.rows.memory import memory_sections
from relascope.viz.rows.profile import lint_sections, profile_sections
from relascope.viz.rows.recorded_numbers import numbers_table
from relascope.viz.rows.recording import gaps, runs_table, times_sections
from relascope.viz.rows.sections import text_table
from relascope.viz.rows.tuning import tasks_table, tuned_sections


def engines(document: Document) -> str:
    lines = [f"relascope {document['relascope']}, Python {document['python']}"]
    for row in document["engines"]:
        lines.append("")
        if error := row["error"]:
            where = f" ({error['where']})" if error["where"] else ""
            lines += [f"{row['engine']}: {error['message']}{where}", f"  {error['hint']}"]
        else:
            lines.append(f"{row['engine']}: TVM {row['version']} in {row['path']}")
            lines += [f"  runs {name}: {words}" for name, words in row["devices"].items()]
            lines += [f"  not {name}: {why}" for name, why in row["missing"].items()]
            lines.append(f"  {sandbox_words(row['sandbox'])}")
    return "\n".join(lines)


def viewer(document: Document) -> str:
    where = document["folder"]
    return f"Open {where}/index.html, or serve the folder: python -m http.server -d {where}"


def install_relay(document: Document) -> str:
    (row,) = document["engines"]
    return f"{document['installed']} carries TVM {row['version']}, which loads: {row['path']}"


def models(document: Document) -> str:
    if "search" in document:
        rows = [{**r, "weights": "here" if r["weights"] else "random"} for r in document["models"]]
        table = text_table(rows, "name; class; parameters; weights")
        return table if rows else "No model here matches. Try another TEXT, or `*`."
    return text_table(document["models"], "name; parameters; training; engines; summary")


def modules(document: Document) -> str:
    return sections.text([tables.modules_table(document["modules"])])


def inputs(document: Document) -> str:
    lines = [text_table(document["inputs"], "input; values")]
    if document["sizes"]:
        rows = [
            {"dimension": "; ".join(r["places"]), **r, "most": r["most"] or "no limit"}
            for r in document["sizes"]
        ]
        table = text_table(rows, "dimension; size; least; most; symbol")
        lines += ["", "Sizes that are open; set one with --pin:", table]
    if document["sets"]:
        lines += ["", f"Sets of saved inputs: {', '.join(document['sets'])}"]
    return "\n".join(lines)


_PARAMETERS = "name; default; choices; unit; about"


def passes(document: Document) -> str:
    if "tests" in document:
        return _tests(document)
    if "pass" in document:
        return _one_pass(document["pass"], document["example"])
    if "passes" not in document:
        return "\n".join(f"{name}: {text}" for name, text in document["pipelines"].items())
    lines = [text_table(document["passes"], "name; title; required; origin"), ""]
    declared = [{"pass": p["name"], **q} for p in document["passes"] for q in p["parameters"]]
    if declared:
        table = text_table(declared, f"pass; {_PARAMETERS}")
        lines += ["Parameters, as in name(key=value):", table, ""]
    lines += [f"{kind}: {text}" for kind, text in document["pipelines"].items() if text]
    lines += ["", "TVM's own pipelines: relascope passes tvm:"]
    return "\n".join(lines)


def _tests(document: Document) -> str:
    lines = []
    for test in document["tests"]:
        word = "passed" if test["passed"] else "FAILED"
        error = test["max_rel"]
        numbers = "" if error is None else f", results within {float(error):.0e} in {test['dtype']}"
        what = "as the file says" if test["expected"] else "by its numbers alone"
        told = f" ({what}{numbers})" if test["passed"] else f": {'; '.join(test['said'])}"
        lines.append(f"{word}  {test['name']}{told}")
        lines += [f"    {line}" for line in test["diff"].splitlines()]
    failed = sum(not t["passed"] for t in document["tests"])
    lines.append(f"{len(document['tests']) - failed} passed, {failed} failed.")
    if document["without"]:
        lines.append(f"Without an example: {', '.join(document['without'])}.")
    return "\n".join(lines)


def _one_pass(entry: Document, example: Document | None) -> str:
    kinds = {"required": entry["required"], "for inspection": entry["looking"]}
    marks = [mark for mark, on in kinds.items() if on]
    facts = {
        "From": entry["origin"],
        "Needs": ", ".join(entry["needs"]),
        "Not after": ", ".join(entry["excludes"]),
        "Before": entry["before"],
        "After": entry["after"],
    }
    head = f"{entry['name']}: {entry['title']}" + (f" ({', '.join(marks)})" if marks else "")
    lines = [head, entry["summary"], *(f"{k}: {v}" for k, v in facts.items() if v)]
    if entry["parameters"]:
        lines += ["", "Parameters, as in name(key=value):"]
        lines.append(text_table(entry["parameters"], _PARAMETERS))
    if example is None:
        return "\n".join([*lines, "", "It has no example."])
    lines += ["", f"On a small program, {example['step']}:", "", example_block(example)]
    return "\n".join([*lines, *(["", example["differs"]] if example["differs"] else [])])


def graph(document: Document) -> str:
    name = f"{document['module']} of {document['model']}" if "module" in document else None
    head = f"{name or document['model']} ({document['engine']})"
    own = document.get("overlays", {})
    shown = tables.graph_sections(document)
    shown += [sections.table(f"{name}:", rows, most=20) for name, rows in own.items()]
    return "\n".join([head, *document["notes"], sections.text(shown)])


_STEPS = (
    "pass; enabled; added; removed; changed; nodes; ms: seconds; verdict?: error.verdict; worst "
    "tensor?: error.worst; max abs error?: error.max_abs; relative to scale?: error.max_rel; "
    "scale?: error.scale; limit?: error.limit"
)


def step(document: Document) -> str:
    rows = document["steps"]
    failed = [
        f"step {number}, {r['pass']}, {what}: {r[key]['message']} ({r[key]['where']})"
        for number, r in enumerate(rows, 1)
        for key, what in (("failure", "failed"), ("check_failure", "cannot be compared"))
        if r[key]
    ]
    pairs = enumerate(zip(rows, [{}, *rows], strict=False), 1)
    told = [part for number, (r, before) in pairs for part in _details(number, r, before)]
    if any("memory" in r for r in rows) and not any(r.get("memory") for r in rows):
        told.append("No step allocates memory. TVM's own pipelines do: --passes tvm:default.")
    return "\n".join([text_table(rows, _STEPS), *failed, *_verified(rows), *told])


def _verified(rows: list[Row]) -> list[str]:
    verified = [r for r in rows if r.get("problems") is not None]
    if not verified:
        return []
    if broken := sum(bool(r["problems"]) for r in verified):
        return [f"{broken} of {len(verified)} programs are broken."]
    more = "" if any(r["error"] for r in rows) else "; numbers were not compared (--check)"
    return [f"{len(verified)} programs verified: graph and types are sound{more}."]


def _details(number: int, step: Row, before: Row) -> list[str]:
    lines = []
    if step.get("changes"):
        beside = step_list.figures_beside(step["before"], step["after"])
        touched = sections.table("", step["changes"], step_list.CHANGED)
        lines.append(sections.text([touched, sections.figures(*beside)]))
    if step.get("diff"):
        lines.append(step["diff"])
    lines += [f"broken: {p}" for p in step.get("problems") or ()]
    if step.get("ir") is not None:
        lines.append(step["ir"].rstrip())
    if step.get("memory"):
        *plan, tensors = memory_sections(step["memory"])
        known = before.get("memory") and memory_sections(before["memory"])[:-1]
        same = known and sections.text(plan) == sections.text(known)
        as_before = "memory: as after the step before"
        lines.append(as_before if same else sections.text([*plan, tensors]))
    if step.get("printed"):
        lines.append(f"printed: {step['printed'].rstrip()}")
    if step.get("inside"):
        lines.append(sections.text(tables.inside_sections(step["inside"])))
    if step.get("inside_failure"):
        lines.append(f"cannot be compared: {step['inside_failure']['message']}")
    return [f"\n{number}. {step['pass']}", *lines] if lines else []


def captures(document: Document) -> str:
    points = *document.get("frontier", ()), *document.get("strategies", ())
    left = dict.fromkeys(("strategy", "measured_peak_bytes"))
    rows = [{**left, **p, "again": work_text(p["share"], 1.0)} for p in points]
    columns = (
        "kept: bytes; peak, estimated: peak_bytes; peak, measured?: measured_peak_bytes; "
        "time added: net_share; computed again: again; captures; strategy"
    )
    measured = text_table(document.get("measured", ()), tables.MEASURED)
    return sections.text([*tables.cut_sections(document), text_table(rows, columns), measured])


def time(document: Document) -> str:
    return sections.text(timings.run_sections(document))


def check(document: Document) -> str:
    if "baseline" in document:
        return _differences(document)
    return sections.text([_head(document), *tables.accuracy_sections(document)])


def bisect(document: Document) -> str:
    verdict = f"{document['verdict']} {document['compiles']} compiles."
    log = tables.tries_table(document["log"])
    return sections.text([_head(document), log, verdict, _written(document)])


def _written(document: Document) -> str:
    """A sentence on a report's place, if there is one."""
    if not document.get("report"):
        return ""
    run = "see README.md" if document["kind"] == OF_TEST else "run report.py"
    return f"Written to {document['report']['folder']}; {run} there."


def profile(document: Document) -> str:
    return sections.text(profile_sections(document))


def replay(document: Document) -> str:
    then, now = document["versions"]["then"] or "unknown", document["versions"]["now"]
    head = f"{document['model']} ({document['engine']}), {document['pipeline']}"
    compared = ", ".join(document["compared"]) or "nothing: the session has no results yet"
    lines = [head, f"TVM {now}, then {then}", f"Compared: {compared}"]
    if document["compared"]:
        lines.append("What was compared is the same." if document["same"] else "It differs:")
    lines += [f"  {d['where']}: {d['then']}, now {d['now']}" for d in document["differences"]]
    return "\n".join(lines)


def lint(document: Document) -> str:
    head = f"{document['model']} ({document['engine']}), {document['pipeline'] or 'as imported'}"
    return sections.text([head, *lint_sections(document)])


def compile(document: Document) -> str:
    target = document["target"]
    head = f"{target['name']}: {', '.join(w for w in (target['kernels'], target['device']) if w)}"
    code = [
        f"== {kernel['phase']} {kernel['name']}, {language}\n{written}"
        for kernel in document["kernels"]
        for language, written in kernel.get("code", {}).items()
    ]
    files = f"{len(document['files'])} files written." if document["files"] else ""
    return sections.text([head, *compiled_sections(document), *code, files])


def reduce(document: Document) -> str:
    bisected = f"{document['bisection']} {document['compiles']} compiles."
    parts = [_head(document), bisected, fault.pieces_table(document["tries"]), document["verdict"]]
    if document["report"] is not None:
        after = document["after"] and f"after:\n{document['after'].rstrip()}"
        before = f"before:\n{document['before'].rstrip()}"
        parts += [document["title"], before, after, _written(document)]
    return sections.text(parts)


def tasks(document: Document) -> str:
    return sections.text([_tuned_on(document), tasks_table(document["tasks"])])


def tune(document: Document) -> str:
    stopped = "Stopped. The results so far are kept." if document["cancelled"] else ""
    kept = f"Records: {document['records']}"
    return sections.text([_tuned_on(document), stopped, kept, *tuned_sections(document)])


def _tuned_on(document: Document) -> str:
    return f"{_head(document)}, {document['threads']} threads"


def _head(document: Document) -> str:
    return f"{document['model']} ({document['engine']}), target {document['target']}"


def record(document: Document) -> str:
    if "environment" in document:
        return "\n".join(f"export {k}={shlex.quote(v)}" for k, v in document["environment"].items())
    ended = f"; the program ended with {document['status']}" if document["status"] else ""
    others = len(document["files"]) - 1
    beside = f", and in files of other processes beside it: {others}" if others else ""
    return f"{document['passes']} passes are in {document['file']}{beside}{ended}"


def open_recording(document: Document) -> str:
    if "errors" in document:
        return _numbers(document)
    if document["diff"] is not None:
        return str(document["diff"] or "It changed nothing.")
    if document.get("written"):
        return f"{document['written']}: {len(document['passes'])} passes."
    said = f"TVM {document['about'].get('tvm')}", *gaps(document)
    return sections.text([*said, runs_table(document["passes"]), *times_sections(document)])


def _numbers(document: Document) -> str:
    parts: list[sections.Section | str] = []
    for part in document["errors"] or ():
        numbers = numbers_table(part["rows"], f"Compared with {part['against']}:")
        parts += [numbers, part["end"] or ""]
    if document["reduction"] is not None:
        parts.append(reduce(document["reduction"]))
    elif document["bisection"] is not None:
        parts.append(bisect(document["bisection"]))
    return sections.text(parts)


def baseline(document: Document) -> str:
    made, kernels = document["made"], document["kernels"]
    operators = sum(sum(ops.values()) for ops in document["operators"].values())
    error, build = document["error"], document["compile"]["build"]
    counts = [f"{operators} operators", *([] if kernels is None else [f"{len(kernels)} kernels"])]
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


def _differences(document: Document) -> str:
    head = f"{document['model']} ({document['engine']}), against {document['baseline']}"
    last = comment.verdict(document)
    if document["differences"] and not document["updated"]:
        last += " If the changes are intended, --update accepts them."
    return "\n".join([head, *document["notes"], *comment.sentences(document), last])


def bulk(document: Document) -> str:
    lines = [{**r, "culprit": ", ".join(r["culprits"])} for r in document["rows"]]
    found = text_table(lines, "model; pipeline; outcome; culprit; seconds")
    culprits = text_table(document["culprits"], "pass; breaks; slows; rounds; suspected; models")
    bad = (r for r in document["rows"] if r["outcome"] != "right")
    verdicts = "\n".join(f"{r['model']}: {r['verdict']}" for r in bad)
    counts = ", ".join(f"{n} {outcome}" for outcome, n in document["outcomes"].items())
    earlier = f"; {document['resumed']} of them from before" if document["resumed"] else ""
    return sections.text([found, culprits, verdicts, f"{counts}{earlier}."])


def pipelines(document: Document) -> str:
    head = f"{document['model']} ({document['engine']}), against {document['against']}"
    table, *said = pipeline_sections(document)
    return sections.text([head, table, "\n".join(s["text"] for s in said)])


def diff(document: Document) -> str:
    sides = (step_list.side_text(side, document[side]) for side in ("a", "b"))
    parts: list[sections.Section | str] = ["\n".join([document["verdict"], *sides])]
    first, end = document["first_difference"], document["end"]
    told = [r for r in document["steps"] if step_list.step_differs(r, first)]
    told.sort(key=lambda r: -abs((r["a_seconds"] or 0.0) - (r["b_seconds"] or 0.0)))
    parts.append(step_list.steps_beside(told, first))
    if first is not None:
        at = first["pass"] or "the beginning"
        parts.append(f"The first difference is at {at}. {first['why']}")
        if "counts" in first and (end is None or first["counts"] != end["counts"]):
            parts.append(f"There: {sections.text(step_list.programs_beside(first))}")
    if end is None:
        parts.append("One program has no graph, so nodes are not compared.")
    else:
        parts.append(f"At the end: {sections.text(step_list.programs_beside(end))}")
    if "groups" in document:
        parts += tables.alignment_sections(document)
    if document["times"]:
        parts.append(_times_beside(document["times"]))
    return sections.text(parts)


def _times_beside(times: Document) -> str:
    shown = "side; target; phase; median: median_ms; ratio: ratio_to_eager; max abs: max_abs_error"
    parts = [text_table(times["rows"], shown), *times["notes"]]
    if times["b_over_a"] is not None:
        parts.insert(0, f"B takes {times['b_over_a']:.2f} times as long as A.")
    return "\n".join(parts)
