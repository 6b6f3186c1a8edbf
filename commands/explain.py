"""The commands that explain a program's speed: its kernels' times, and what could be faster."""

from relascope.commands.shared import Command, Document, write
from relascope.core.graph import Graph
from relascope.engine.protocol.profile import Profile
from relascope.passes.catalogue import last_built
from relascope.viz.handed_on.chrome_trace import trace_json
from relascope.viz.rows.profile import computing, findings, lint_document, profile_document


def profile(command: Command) -> Document:
    """Time every kernel by itself, against what the machine does at best."""
    args, source, pipeline = command.args, command.source, command.pipeline
    graph: Graph = command("graph_after", source, pipeline, last_built(command.engine, pipeline))
    result = _profile(command)
    document = command.about(source, pipeline) | profile_document(result, graph)
    if args.operator:
        document |= {"operator": args.operator, "chosen": computing(document, args.operator)}
    if args.trace:
        write(args.trace, trace_json(document))
    return command.written(document)


def lint(command: Command) -> Document:
    """What could be faster in the program, and the passes that make it so."""
    source, pipeline, measure = command.source, command.pipeline, command.args.measure
    result = kernels = None
    target = command.target
    graph: Graph = command("graph_after", source, pipeline, last_built(command.engine, pipeline))
    if measure:
        result = _profile(command)
    else:
        kernels = command("kernels", source, pipeline, True)
    document = command.about(source, pipeline, built=False)
    document |= {"target": target, "measured": measure}
    return command.written(document | lint_document(findings(graph, kernels, result, target)))


def _profile(command: Command) -> Profile:
    found: Profile = command("profile", command.cut_request())
    return found
