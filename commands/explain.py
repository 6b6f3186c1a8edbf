"""The commands that explain a program's speed: its kernels' times, and what could be faster."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from relascope.commands.shared import (
    Connect,
    Document,
    Engine,
    cut_request,
    first_target,
    pipeline_of,
    source_of,
    write,
)
from relascope.core.graph import Graph
from relascope.engine.protocol.profile import Profile
from relascope.engine.protocol.session import Ask
from relascope.passes.catalogue import last_built
from relascope.viz.rows import profile as explained
from relascope.viz.rows.chrome_trace import trace_json


def trace_option(command: argparse.ArgumentParser) -> None:
    """A file that shows the kernels on a line of time."""
    command.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write one run's kernels as a trace for chrome://tracing or Perfetto",
    )


def profile(args: argparse.Namespace, connect: Connect) -> Document:
    """Time every kernel by itself, against what the machine does at best."""
    source, pipeline = source_of(args), pipeline_of(args)
    with Engine(args, connect) as ask:
        graph: Graph = ask("graph_after", source, pipeline, last_built(args.engine, pipeline))
        result = _profile(args, ask)
    document = {
        "model": source.model,
        "engine": args.engine,
        "pipeline": str(pipeline),
        "strategy": args.strategy if source.training else None,
        **explained.profile_document(result, graph),
    }
    if args.trace:
        write(args.trace, trace_json(document))
    return _kept(args, document)


def lint(args: argparse.Namespace, connect: Connect) -> Document:
    """What could be faster in the program, and the passes that make it so."""
    source, pipeline = source_of(args), pipeline_of(args)
    result = kernels = None
    with Engine(args, connect) as ask:
        target = args.target or first_target(ask)
        graph: Graph = ask("graph_after", source, pipeline, last_built(args.engine, pipeline))
        if args.measure:
            result = _profile(args, ask)
        else:
            kernels = ask("kernels", source, pipeline, True)
    return _kept(
        args,
        {
            "model": source.model,
            "engine": args.engine,
            "pipeline": str(pipeline),
            "target": target,
            "measured": args.measure,
            **explained.lint_document(explained.findings(graph, kernels, result, target)),
        },
    )


def _profile(args: argparse.Namespace, ask: Ask) -> Profile:
    found: Profile = ask("profile", cut_request(args, ask))
    return found


def _kept(args: argparse.Namespace, document: Document) -> Document:
    """The document, written to a file as well where one is named."""
    if args.output:
        write(args.output, json.dumps(document, ensure_ascii=False))
    return document
