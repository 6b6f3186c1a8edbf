"""The same jobs as the page's, without a browser: `python cli.py COMMAND … --json`.

With --json, stdout is exactly one JSON document; progress and logs go to stderr. The exit status is
0 when the job was done, 1 when it was not (then the document is {"error": …}), 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from commands import building, explain, tuning
from commands.shared import (
    Connect,
    Document,
    Engine,
    bench_of,
    cut_of,
    first_target,
    pipeline_of,
    source_of,
    write,
)
from engine import bisection, cutting, nodewise, reduction, stepping, truth
from engine.client import EngineClient
from engine.cutting import joint_of
from engine.session import Ask, EngineError, ModelSource, plain
from passes import cut as cuts
from passes.catalogue import (
    default_pipeline,
    gradients,
)
from passes.catalogue import info as pass_info
from passes.pipeline import Pipeline
from passes.user import name_files
from samples import SAMPLES
from viz import artefacts, options, reports, tables, texts, tuned
from viz.align import align
from viz.changes import step_details
from viz.export import to_dot
from viz.graph import Graph
from viz.script import script

ENGINES = ("relay", "relax")


def main(argv: Sequence[str] | None = None, connect: Connect = EngineClient) -> int:
    """Run one command and return the exit status.

    Args:
        argv: the arguments after the program's name; None takes them from the process.
        connect: makes the client of an engine from the name of its IR.
    """
    args = _parser().parse_args(argv)
    if not args.verbose:  # an error is told in words; Python would print the engine's log as well
        logging.getLogger("relascope.engine").addHandler(logging.NullHandler())
    try:
        _own_passes(args)
        document = args.run(args, connect)
    except EngineError as error:
        return _fail(args, error)
    except KeyboardInterrupt:
        return _fail(args, EngineError("cancelled", "Stopped from the keyboard."))
    text = json.dumps(document, ensure_ascii=False, allow_nan=False) if args.json else None
    try:
        print(args.text(document) if text is None else text, flush=True)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if document.get("cancelled") else 0


def _fail(args: argparse.Namespace, error: EngineError) -> int:
    if args.json:
        print(json.dumps({"error": error.to_json()}, ensure_ascii=False))
    where = f" ({error.where})" if error.where else ""
    print(f"error: {error.message}{where}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return 2 if error.kind == "usage" else 1


# The commands. Each takes the arguments and returns the document that --json prints.


def models(args: argparse.Namespace, connect: Connect) -> Document:
    """The built-in samples."""
    return {"models": tables.model_rows(SAMPLES.values(), ENGINES)}


def passes(args: argparse.Namespace, connect: Connect) -> Document:
    """Every pass of the engine's catalogue, and the default pipelines; or one pass, in full."""
    if args.name is not None:
        with Engine(args, connect) as ask:
            example = ask("example", args.name)
        entry = tables.pass_row(pass_info(args.engine, args.name))
        return {
            "engine": args.engine, "pass": entry, "example": tables.example_document(example)
        }  # fmt: skip
    pipelines = {"inference": default_pipeline(args.engine, False)}
    for way in gradients(args.engine):
        name = "training" if way == "tvm" else f"training_{way}"
        pipelines[name] = default_pipeline(args.engine, True, way)
    return {
        "engine": args.engine,
        "passes": tables.pass_rows(args.engine),
        "pipelines": {name: str(pipeline) for name, pipeline in pipelines.items()},
    }


def graph(args: argparse.Namespace, connect: Connect) -> Document:
    """The graph of a model, as imported, or with --passes after the pipeline."""
    source = source_of(args)
    pipeline = pipeline_of(args) if args.passes else None
    with Engine(args, connect) as ask:
        info = ask("load", source)
        after = ask("graph_after", source, pipeline, len(pipeline) - 1) if pipeline else info.graph
    document = tables.model_document(info, args.engine, after, pipeline)
    if args.output:
        if args.output.suffix == ".dot":
            write(args.output, to_dot(after))
        else:
            write(args.output, json.dumps(after.to_json(), ensure_ascii=False))
    return document


def step(args: argparse.Namespace, connect: Connect) -> Document:
    """What each pass of a pipeline did; with --check, the error against PyTorch after each."""
    source, pipeline = source_of(args), pipeline_of(args)
    errors: dict[int, tables.Row] = {}
    details: list[tables.Row] = []
    with Engine(args, connect) as ask:
        stepped = stepping.step(ask, source, pipeline)
        alive = stepped.pipeline
        if args.changes or args.text_diff:
            details = step_details(
                ask, args.engine, source, alive, args.changes, args.text_diff
            )  # fmt: skip
        if args.check:
            errors = _check_steps(ask, source, alive, args)
        if args.inside:
            insides = _inside_steps(ask, source, alive, args)
            details = [{**d, **i} for d, i in zip_longest(details, insides, fillvalue=tables.Row())]
        if args.export:
            write(args.export, script(args.engine, source, pipeline))
        if args.output:
            graphs = [ask("graph_after", source, alive, i) for i in range(-1, len(alive))]
            write(args.output, json.dumps([g.to_json() for g in graphs], ensure_ascii=False))
    return {
        "model": source.model,
        "engine": args.engine,
        "pipeline": str(pipeline),
        "steps": [
            {**row, **more}
            for row, more in zip_longest(
                tables.step_rows(stepped.records, errors), details, fillvalue=tables.Row()
            )
        ],
    }


def check(args: argparse.Namespace, connect: Connect) -> Document:
    """Every stage of the way against PyTorch, in float32 and float64: the truth table."""
    dtypes = (args.dtype,) if args.dtype else truth.DTYPES
    args.dtype = dtypes[0]
    sample = SAMPLES.get(args.model)
    trains = sample is None or sample.training
    inference = training = None
    if not args.training:
        inference = pipeline_of(args)
    if args.training or (trains and not args.passes):
        args.training = True
        training = pipeline_of(args)
    strategies = (args.strategy,) if args.strategy else tuple(cuts.STRATEGIES)
    stages = truth.plan(
        args.engine, source_of(args), inference, training, strategies, args.budget, dtypes
    )
    with Engine(args, connect) as ask:
        ask("load", stages[0].source)  # what cannot be opened is no row of the table
        target = args.target or first_target(ask)
        rows = [row for stage in stages for row in truth.run(ask, stage, target)]
    document = tables.truth_document(args.model, args.engine, target, rows)
    if args.output:
        write(args.output, json.dumps(document, ensure_ascii=False))
    return document


def bisect(args: argparse.Namespace, connect: Connect) -> Document:
    """The first pass that makes a pipeline wrong, slow, or crash."""
    with Engine(args, connect) as ask:
        result = _bisected(args, ask)
    document = tables.bisect_document(args.engine, result)
    if args.output:
        write(args.output, json.dumps(document, ensure_ascii=False))
    return document


def reduce(args: argparse.Namespace, connect: Connect) -> Document:
    """Bisect, then narrow the fault inside the pass to a few nodes, as a report that runs."""
    reports.check_folder(args.out)
    with Engine(args, connect) as ask:
        found = _bisected(args, ask)
        made = None
        if not reduction.cannot(found):
            made = reduction.narrow(ask, args.engine, found, most=args.tries)
    if made is not None and made.report is not None:
        reports.write(made.report, args.out)
    return reports.document(args.engine, found, made, str(args.out))


def captures(args: argparse.Namespace, connect: Connect) -> Document:
    """What the forward saves for the backward under one strategy."""
    args.training = True
    source, pipeline = source_of(args), pipeline_of(args)
    started = time.perf_counter()
    with Engine(args, connect) as ask:
        measured = None
        if args.prices == "measured":
            measured = cutting.forward_times(ask, source, pipeline, bench_of(args, ask))
        cut = cut_of(joint_of(ask, source, pipeline, measured), args)
        document = {
            "model": source.model,
            "engine": args.engine,
            "pipeline": str(pipeline),
            **tables.cut_document(cut),
            "seconds": time.perf_counter() - started,
            "rivals": tables.rivals_document(ask("rivals", source)),
        }
        if args.frontier:
            document |= tables.frontier_document(cut.joint)
        if args.measure:
            points = [(args.strategy, cut)]
            if args.frontier:
                others = (n for n, s in cuts.STRATEGIES.items() if not s.has_budget)
                points += [(n, cuts.cut(cut.joint, n)) for n in others if n != args.strategy]
            bench = bench_of(args, ask)
            document["measured"] = plain(cutting.measure(ask, source, pipeline, points, bench))
        if args.output:
            split = ask("split", source, pipeline, cut.ids)
            write(args.output, json.dumps(plain(split), ensure_ascii=False))
    return document


def both_gradients(args: argparse.Namespace, connect: Connect) -> Document:
    """TVM's gradient beside PyTorch's: nodes, operators, captures and the largest error."""
    args.training, args.gradient = True, "tvm"
    ways = [replace(source_of(args), gradient=way) for way in gradients(args.engine)]
    rows = []
    with Engine(args, connect) as ask:
        target = args.target or first_target(ask)
        for source in ways:
            pipeline = default_pipeline(args.engine, True, source.gradient)
            joint = joint_of(ask, source, pipeline)
            errors = ask("check", source, pipeline, cuts.cut(joint).ids, target)
            rows.append(tables.gradient_row(source.gradient, joint, errors))
    return {
        "model": args.model, "engine": args.engine, "target": target, "dtype": args.dtype,
        "gradients": rows,
    }  # fmt: skip


def compare(args: argparse.Namespace, connect: Connect) -> Document:
    """What each PyTorch operator became in Relay and in Relax."""
    graphs: dict[str, Graph] = {}
    engines: dict[str, tables.Row] = {}
    for ir in ENGINES:
        way = args.gradient if args.gradient in gradients(ir) else "tvm"
        mine = argparse.Namespace(**{**vars(args), "engine": ir, "gradient": way})
        source = source_of(mine)
        pipeline = pipeline_of(mine) if args.passes else None
        try:
            with Engine(mine, connect) as ask:
                graph: Graph = ask("load", source).graph
                if pipeline:
                    graph = ask("graph_after", source, pipeline, len(pipeline) - 1)
        except EngineError as error:
            if not graphs and ir == ENGINES[-1]:
                raise  # neither can be looked at
            engines[ir] = {"error": error.to_json()}
        else:
            graphs[ir] = graph
            about = {"pipeline": str(pipeline or ""), "nodes": len(graph)}
            engines[ir] = {**about, "edges": graph.edge_count, "error": None}
    rows = dict.fromkeys(("operators", "groups", "calls", "unmatched"))
    if len(graphs) == len(ENGINES):
        rows = tables.alignment_document(align(*graphs.values()))
    return {"model": args.model, "engines": engines, **rows}


# What some of them share.


def _bisected(args: argparse.Namespace, ask: Callable[..., Any]) -> bisection.Bisection:
    source, pipeline = source_of(args), pipeline_of(args)
    ask("load", source)  # what cannot be opened is no fault of a pass
    question = bisection.Question(
        source, pipeline, args.target or first_target(ask), args.kind or "", args.factor,
        args.threads, args.repeats,
    )  # fmt: skip
    return bisection.bisect(ask, args.engine, question)


def _check_steps(
    ask: Callable[..., Any], source: ModelSource, pipeline: Pipeline, args: argparse.Namespace
) -> dict[int, tables.Row]:
    """The worst error against PyTorch after each enabled step that leaves a runnable program."""
    target = args.target or first_target(ask)
    errors: dict[int, tables.Row] = {}
    for index, one in enumerate(pipeline):
        if not one.enabled:
            continue
        upto, captured = pipeline.upto(index), None
        if source.training:
            joint = ask("graph_after", source, upto, index)
            if joint.forward_outputs is None:
                continue
            captured = cut_of(joint_of(ask, source, upto), args).ids
        error = tables.worst(ask("check", source, upto, captured, target))
        if error is not None:
            errors[index] = error
    return errors


def _inside_steps(
    ask: Ask, source: ModelSource, pipeline: Pipeline, args: argparse.Namespace
) -> list[tables.Row]:
    """The nodes inside against PyTorch's tensors, by step; nothing of a step that did not run.

    A program that cannot be built, such as one between two passes of the way to a gradient, is a
    failure of its step's comparison and of no other.
    """
    target = args.target or first_target(ask)
    rows: list[tables.Row] = []
    for index, one in enumerate(pipeline):
        row: tables.Row = {"inside": None, "inside_failure": None}
        try:
            if one.enabled:
                found = nodewise.both(ask, args.engine, source, pipeline, index, target)
                row["inside"] = tables.inside_document(list(found))
        except EngineError as error:
            if error.kind == "cancelled":
                raise
            row["inside_failure"] = error.to_json()
        rows.append(row)
    return rows


def _own_passes(args: argparse.Namespace) -> None:
    try:
        name_files(getattr(args, "pass_file", []))
    except ValueError as wrong:
        raise EngineError(
            "usage", f"{wrong}.", "--pass-file", "A pass is a function of `program`.",
        ) from wrong  # fmt: skip


# The arguments.


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cli.py",
        description="See, step, cut, compile and time TVM graphs of PyTorch models.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    program = (options.model, options.gradient, options.passes)
    for name, run, text, help_, groups in (
        ("models", models, texts.models, "list the samples", ()),
        ("passes", passes, texts.passes, "list the passes and the default pipelines, or show one",
         (options.one_pass, options.pass_file)),
        ("graph", graph, texts.graph, "the graph of a model",
         (*program, options.output)),
        ("step", step, texts.step, "what each pass of a pipeline does",
         (*program, options.check, options.output)),
        ("compare", compare, texts.compare, "one model in Relay and in Relax",
         program),
        ("check", check, texts.check, "every stage against PyTorch, in float32 and float64",
         (*program, options.truth, options.output)),
        ("bisect", bisect, texts.bisect, "the first pass that makes a pipeline bad",
         (*program, options.bisect, options.time, options.output)),
        ("reduce", reduce, reports.text, "narrow a fault inside a pass; a report that runs",
         (*program, options.bisect, options.time, options.reduce)),
        ("captures", captures, texts.captures, "what the forward saves for the backward",
         (*program, options.captures, options.time, options.output)),
        ("gradients", both_gradients, texts.gradients, "TVM's gradient beside PyTorch's",
         (options.model, options.target)),
        ("compile", building.compile_model, artefacts.text, "build for a target, and see the code",
         (*program, options.by_hand, building.compile_options)),
        ("time", building.time_model, texts.time, "compile, compare and time against PyTorch",
         (*program, options.by_hand, options.rivals, building.time_options, options.output)),
        ("profile", explain.profile, texts.profile, "time every kernel by itself",
         (*program, options.by_hand, options.time, explain.trace_option, options.output)),
        ("tasks", tuning.tasks, tuned.tasks_text, "the kernels that can be tuned",
         (*program, options.by_hand, tuning.options, options.output)),
        ("tune", tuning.tune, tuned.tune_text, "measure schedules of kernels, and keep the best",
         (*program, options.by_hand, tuning.options, tuning.more_options, options.output)),
        ("lint", explain.lint, texts.lint, "what could be faster, and the pass that makes it so",
         (*program, options.lint, options.output)),
    ):  # fmt: skip
        command = commands.add_parser(name, help=help_, description=run.__doc__, allow_abbrev=False)
        command.set_defaults(run=run, text=text)
        if run is not compare:
            command.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="which TVM")
        command.add_argument("--json", action="store_true", help="print one JSON document")
        command.add_argument("--verbose", action="store_true", help="the engine's log, on stderr")
        for add in groups:
            add(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
