"""`pipelines`: a model through each of TVM's own pipelines, and with each pass out or in front."""

import argparse

from relascope.commands.gate.bulk import digest_of, lines_of
from relascope.commands.shared import (
    Connect,
    Document,
    EngineCalls,
    source_of,
    target_of,
    tolerance_of,
)
from relascope.engine.jobs.bulk import Task, through_tvms
from relascope.passes.catalogue import default_pipeline
from relascope.passes.pipeline import TvmPipelines
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
        against = ask("load", source, True).against
    ours = Task(
        args.engine,
        args.model,
        source,
        "default",
        default_pipeline(args.engine, args.training, args.gradient),
        target,
        tolerance=tolerance_of(args),
        digest=digest_of((source.model,)),
    )
    tasks = list(through_tvms(ours, theirs))
    found, resumed = lines_of(args, tasks, connect)
    about = {"model": args.model, "engine": args.engine, "target": target, "against": against}
    whole = {task.key for task in tasks if task.search}
    return {**about, **rows.document(found, whole, args.fail), "resumed": resumed}
