"""`pipelines`: a model through each of TVM's own pipelines, and with each pass out or in front."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from relascope.commands.gate.bulk import digest_of, lines_of
from relascope.commands.shared import (
    Connect,
    Document,
    EngineCalls,
    source_of,
    target_of,
    tolerance_of,
)
from relascope.engine.jobs.bulk import Task
from relascope.passes.catalogue import default_pipeline, read_pipeline, with_tvms
from relascope.passes.catalogue.tvm_named import MARK
from relascope.passes.pipeline import Pipeline, TvmPipelines
from relascope.viz.rows.gate import pipelines as rows


def pipelines(args: argparse.Namespace, connect: Connect) -> Document:
    """Run a model through TVM's own pipelines: each as it is, the last one without each of its
    passes, and the first one with each other pass in front. What is bad is bisected.

    Lines are written to -o as they are found; the same command goes on where it was stopped.
    """
    source = source_of(args)
    with EngineCalls(args, connect) as ask:
        theirs: TvmPipelines = ask("pipelines", args.target or "")
        target = target_of(args, ask)
        against = ask("load", source).against
    digest = digest_of((source.model,))
    tasks = [
        Task(
            args.engine,
            args.model,
            source,
            name,
            read_pipeline(args.engine, text),
            target,
            tolerance=tolerance_of(args),
            digest=digest,
            search=search,
        )
        for name, text, search in _cases(args, theirs)
    ]
    found, resumed = lines_of(args, tasks, connect)
    about = {"model": args.model, "engine": args.engine, "target": target, "against": against}
    whole = {task.key for task in tasks if task.search}
    return {**about, **rows.document(found, whole, args.fail), "resumed": resumed}


def _cases(args: argparse.Namespace, theirs: TvmPipelines) -> Iterator[tuple[str, str, bool]]:
    """What each pipeline is called and its text, and whether it is bisected where it is bad."""
    ir, known = args.engine, theirs.pipelines
    yield "default", str(default_pipeline(ir, args.training, args.gradient)), True
    if args.training:
        return  # TVM's pipelines have no gradient
    for name in known:
        yield MARK + name, known[name], True
    first, last = MARK + next(iter(known)), MARK + [*known][-1]
    steps = dict.fromkeys(s.name for s in Pipeline.parse(known[last.removeprefix(MARK)]))
    for name in (n for n in steps if n in theirs.left_out):
        yield f"{last}|-{name}", with_tvms(ir, f"{last}|-{name}", known), False
    for name in theirs.in_front:
        yield f"{name}|{first}", with_tvms(ir, f"{name}|{first}", known), False
