"""The commands that explain a program's speed: its kernels' times, and what could be faster."""

import argparse

from relascope.commands.shared import (
    Connect,
    Document,
    EngineCalls,
    about,
    cut_request,
    pipeline_of,
    source_of,
    target_of,
    write,
    written_out,
)
from relascope.core.graph import Graph
from relascope.engine.protocol.profile import Profile
from relascope.engine.protocol.session import Ask
from relascope.passes.catalogue import last_built
from relascope.viz.handed_on.chrome_trace import trace_json
from relascope.viz.rows.profile import computing, findings, lint_document, profile_document


def profile(args: argparse.Namespace, connect: Connect) -> Document:
    """Time every kernel by itself, against what the machine does at best."""
    source, pipeline = source_of(args), pipeline_of(args)
    with EngineCalls(args, connect) as ask:
        graph: Graph = ask("graph_after", source, pipeline, last_built(args.engine, pipeline))
        result = _profile(args, ask)
    document = about(args, source, pipeline) | profile_document(result, graph)
    if args.operator:
        document |= {"operator": args.operator, "chosen": computing(document, args.operator)}
    if args.trace:
        write(args.trace, trace_json(document))
    return written_out(args, document)


def lint(args: argparse.Namespace, connect: Connect) -> Document:
    """What could be faster in the program, and the passes that make it so."""
    source, pipeline = source_of(args), pipeline_of(args)
    result = kernels = None
    with EngineCalls(args, connect) as ask:
        target = target_of(args, ask)
        graph: Graph = ask("graph_after", source, pipeline, last_built(args.engine, pipeline))
        if args.measure:
            result = _profile(args, ask)
        else:
            kernels = ask("kernels", source, pipeline, True)
    document = about(args, source, pipeline, built=False)
    document |= {"target": target, "measured": args.measure}
    return written_out(args, document | lint_document(findings(graph, kernels, result, target)))


def _profile(args: argparse.Namespace, ask: Ask) -> Profile:
    found: Profile = ask("profile", cut_request(args, ask))
    return found
