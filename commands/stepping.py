"""`step` and `check`."""

from argparse import Namespace
from dataclasses import replace
from itertools import zip_longest

from relascope.commands import handing_on
from relascope.commands.gate.baseline import check_baseline
from relascope.commands.shared import Command, Document, write
from relascope.core.errors import EngineError
from relascope.core.identity import carry_identity
from relascope.engine.jobs import accuracy, node_accuracy
from relascope.engine.jobs.cut import with_cut
from relascope.engine.jobs.step import Stepped
from relascope.engine.jobs.step import step as run_steps
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource, own_inputs
from relascope.passes.catalogue import last_built, recorded
from relascope.passes.cuts.cut import STRATEGIES
from relascope.passes.pipeline import Pipeline
from relascope.samples import SAMPLES
from relascope.viz.compare import changes
from relascope.viz.compare.text import text_diff
from relascope.viz.rows import Row, tables
from relascope.viz.rows.memory import memory_document
from relascope.viz.rows.script import step_script


def step(command: Command) -> Document:
    """What each pass of a pipeline did; with --check, the error against PyTorch after each."""
    args, source = command.args, command.source
    pipeline = _stopped(args.last, command.pipeline)
    handing_on.check_ending(args, *handing_on.LISTS)
    stepped = run_steps(command, source, pipeline)
    details = [_details(command, source, stepped, i) for i in range(len(stepped.records))]
    errors = _check_steps(command, source, stepped.sound) if args.check else {}
    insides = _inside_steps(command, source, stepped.sound) if args.inside else []
    if args.export and command.recorded:
        raise command.recorded.refusal
    if args.export:
        write(args.export, step_script(command.engine, source, pipeline))
    if args.output:
        handing_on.steps(command, source, stepped, errors)
    parts = tables.step_rows(stepped.records, errors), details, insides
    steps = [row | more | inside for row, more, inside in zip_longest(*parts, fillvalue=Row())]
    fails = args.verify and any(map(_broken, steps))
    return {**command.about(source, pipeline, built=False), "steps": steps, "fails": fails}


def _broken(step: Row) -> bool:
    """Whether a step failed, left a broken program, or one with wrong numbers."""
    wrong = (step["error"] or {}).get("verdict") == "wrong"
    return bool(step["failure"] or step["problems"] or step["check_failure"]) or wrong


def _stopped(last: str | None, pipeline: Pipeline) -> Pipeline:
    """The pipeline up to --stop-after. Raises EngineError if it has no such step."""
    if last is None:
        return pipeline
    places = [i for i, s in enumerate(pipeline) if s.enabled and s.name == last]
    hint = f"Name a pass that is on, or a number from 1 to {len(pipeline)}."
    if recorded.in_pipeline(pipeline):  # in the order in which they ended, numbered as they began
        named = [(str(recorded.number_of(s)), recorded.entry("", s).title) for s in pipeline]
        places = [i for i, names in enumerate(named) if last in names]
        hint = "Name a pass, or its number, which `relascope open --print` shows."
    elif last.isdigit() and 0 < int(last) <= len(pipeline):
        places = [int(last) - 1]
    if not places:
        raise EngineError("usage", f"The pipeline has no step {last!r}.", "--stop-after", hint)
    return pipeline.upto(places[0])


def _details(command: Command, source: ModelSource, stepped: Stepped, index: int) -> Row:
    """The parts of a step's row that options add: its changes, with figures and counts of operators
    before and after, and differences in the IR's text; for a step that ran, the program's
    problems and its plan of memory."""
    args, alive, record, row = command.args, stepped.pipeline, stepped.records[index], Row()
    sides = changes.around(command.engine, alive, index)
    ran = record.enabled and record.error is None
    if args.changes:
        old, new = (command("graph_after", source, *side) for side in sides)
        row["changes"] = changes.change_rows(old, carry_identity(old, new))
        for name, graph in (("before", old), ("after", new)):
            row[name] = {**changes.figures(graph), "operators": graph.operators}
    if args.text_diff:
        row["diff"] = text_diff(*(command("text", source, *side) for side in sides))
    if args.printed or args.print_changed or args.verify or args.memory:
        row |= {"ir": None, "problems": None}
    if ran and (args.printed or args.print_changed):
        before, text = (command("text", source, *side) for side in sides)
        row["ir"] = text if args.printed or text != before else None
    if ran and args.verify:
        row["problems"] = list(command("verify", source, alive, index))
    if args.memory:
        row["memory"] = (
            memory_document(command("graph_after", source, alive, index)) if ran else None
        )
    return row


def check(command: Command) -> Document:
    """Every stage of the way against PyTorch, in float32 and float64: the accuracy report.

    With --baseline, what differs from one, in a sentence each."""
    args = command.args
    if args.baseline is not None:
        return check_baseline(command)
    _check_gate(args)
    training, stages = args.training, _planned(command)
    target = command.target
    stages, also = accuracy.of_program(command, stages, target, training, not args.inputs)
    tried = accuracy.each(stages, lambda stage: accuracy.run(command, stage, target))
    rows = [row for _, found in tried for row in found]
    info = command("load", accuracy.opened(stages, training), True)
    document = tables.accuracy_document(args.model, command.engine, target, rows, info.against)
    document["verdict"] = " ".join(filter(None, (document["verdict"], info.unjudged, *also)))
    verdicts = {row["verdict"] for row in document["inputs"]}
    bad = {v for kind in args.fail_on or () for v in _VERDICTS[kind]}
    return command.written({**document, "against": info.against, "fails": bool(verdicts & bad)})


def _planned(command: Command) -> tuple[accuracy.Stage, ...]:
    """Every requested stage, on each kind of inputs."""
    args = command.args
    dtypes = (args.dtype,) if args.dtype else accuracy.DTYPES
    args.dtype = dtypes[0]
    sample = SAMPLES.get(args.model)
    trains = sample is None or sample.training
    inference = None if args.training else command.pipeline
    training = None
    if args.training or (trains and not args.passes):
        args.training = True
        training = command.pipeline
    strategies = (args.strategy,) if args.strategy else tuple(STRATEGIES)
    how = strategies, args.budget, dtypes
    planned = accuracy.plan(command.engine, command.source, inference, training, *how)
    stages = [replace(stage, tolerance=command.tolerance) for stage in planned]
    return accuracy.with_inputs(stages, args.inputs or own_inputs(planned[0].source))


_VERDICTS = {"wrong": ("wrong", "cannot be run"), "error": ("rounding", "over")}
"""The values of `--fail-on` without a baseline, and their verdicts."""


def _check_gate(args: Namespace) -> None:
    """Refuse options that need a baseline (EngineError, kind "usage")."""
    if given := [n for n in ("update", "markdown", "speed", "threads") if getattr(args, n)]:
        hint = "Add --baseline FILE."
        raise EngineError("usage", "This option needs a baseline.", f"--{given[0]}", hint)
    if strange := [k for k in args.fail_on or () if k not in _VERDICTS]:
        message = f"Without a baseline, {', '.join(strange)} cannot be checked."
        hint = f"Add --baseline FILE, or choose only from {', '.join(_VERDICTS)}."
        raise EngineError("usage", message, "--fail-on", hint)


def _check_steps(command: Command, source: ModelSource, pipeline: Pipeline) -> dict[int, Row]:
    """The program's results after each enabled step, against PyTorch, or why there are none."""
    target, given = command.target, command.tolerance
    rows: dict[int, Row] = {}
    known: dict[Pipeline, Row] = {}
    for index, one in enumerate(pipeline):
        upto = pipeline.upto(last_built(command.engine, pipeline.upto(index)))

        def request(source: ModelSource, upto: Pipeline = upto) -> BuildRequest:
            return with_cut(command, BuildRequest(source, upto, target), command.cut, False)

        if one.enabled and upto not in known:
            try:
                found = accuracy.judged(command, source, request, given)
                known[upto] = {"error": tables.judged_row(found), "check_failure": None}
            except EngineError as error:
                known[upto] = {"error": None, "check_failure": error.as_finding().to_json()}
        if one.enabled:
            rows[index] = known[upto]
    return rows


def _inside_steps(command: Command, source: ModelSource, pipeline: Pipeline) -> list[Row]:
    """The nodes inside against PyTorch's tensors, by step, without steps that did not run.

    A program that cannot be built, such as one between two passes of the way to a gradient, is a
    failure of its step's comparison and of no other."""
    target = command.target
    rows: list[Row] = []
    for index, one in enumerate(pipeline):
        row: Row = {"inside": None, "inside_failure": None}
        try:
            if one.enabled:
                about = command.engine, source, pipeline, index, target, command.tolerance
                row["inside"] = tables.inside_document(list(node_accuracy.both(command, *about)))
        except EngineError as error:
            row["inside_failure"] = error.as_finding().to_json()
        rows.append(row)
    return rows
