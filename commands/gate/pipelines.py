"""`pipelines`: a model through each of TVM's own pipelines, and with each pass out or in front."""

from relascope.commands.gate.bulk import digest_of, lines_of
from relascope.commands.shared import Command, Document
from relascope.engine.jobs.bulk import Task, through_tvms
from relascope.passes.catalogue import default_pipeline
from relascope.passes.pipeline import TvmPipelines
from relascope.viz.rows.gate import pipelines as rows


def pipelines(command: Command) -> Document:
    """Run a model through TVM's own pipelines: each as it is, the last one without each of its
    passes, and the first one with each other pass in front. What is bad is bisected.

    Lines are written to -o as they are found; the same command goes on where it was stopped.
    """
    args, source = command.args, command.source
    with command:  # what follows has engines of its own
        theirs: TvmPipelines = command("pipelines", args.target or "")
        target = command.target
        against = command("load", source, True).against
    ours = Task(
        command.engine,
        args.model,
        source,
        "default",
        default_pipeline(command.engine, args.training, args.gradient),
        target,
        tolerance=command.tolerance,
        digest=digest_of((source.model,)),
    )
    tasks = list(through_tvms(ours, theirs))
    found, resumed = lines_of(command, tasks)
    about = {"model": args.model, "engine": command.engine, "target": target, "against": against}
    whole = {task.key for task in tasks if task.search}
    return {**about, **rows.document(found, whole, args.fail), "resumed": resumed}
