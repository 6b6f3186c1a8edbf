"""The commands that build: for a target, for timing, and to explain a program's speed."""

import json
from pathlib import Path

from relascope.commands import handing_on
from relascope.commands.shared import Command, Document, check_folder, write, writing
from relascope.core.graph import Graph
from relascope.engine.jobs import variants
from relascope.engine.protocol.profile import Profile
from relascope.engine.protocol.request import BuildRequest
from relascope.passes.catalogue import last_built
from relascope.viz.handed_on.chrome_trace import trace_json
from relascope.viz.rows import artefact, timings
from relascope.viz.rows.profile import computing, findings, lint_document, profile_document


def compile_model(command: Command) -> Document:
    """Build for a target, whose device need not be here: sizes, and each kernel's code."""
    args, source, pipeline = command.args, command.source, command.pipeline
    if args.output:
        check_folder(args.output, "library", "-o")
    folder = str(args.output.absolute()) if args.output else ""
    request = BuildRequest(source, pipeline, args.target)
    found = command("compile", command.cut_request(request), folder)
    return command.about(source, pipeline) | artefact.document(found, args.code)


def time_model(command: Command) -> Document:
    """Compile, compare with PyTorch, and time against PyTorch eager, in one way or several."""
    args = command.args
    handing_on.check_ending(args, *handing_on.LISTS)
    source, pipeline = command.source, command.pipeline
    request = command.request()
    taken: tuple[variants.Offer, ...] = ()
    if args.variants:
        offered = variants.offers(command.engine, command("describe").targets, request.target)
        taken = variants.chosen(args.variants, offered)
    made = variants.variants(request, taken, command.cut_request)
    request = command.cut_request(request)
    strategy = args.strategy if source.training else None
    facts = timings.run_facts(source.model, request, command.engine, strategy)
    document = timings.run_document(command("time", request, tuple(args.baseline), made), facts)
    if args.output:
        handing_on.times(command, source, pipeline, document)
    if args.history:
        _append(args.history, document)
    return document


def _append(path: Path, document: Document) -> None:
    if path.suffix == ".csv":
        with writing(path, "--history"):
            text = path.read_text("utf-8", "replace") if path.exists() else ""
        head = text.partition("\n")[0]  # another version's may have fewer columns
        text = timings.history_csv([document], head.split(",") if head else ())
    else:
        text = json.dumps(document, ensure_ascii=False) + "\n"
    write(path, text, "--history", "a")


def profile(command: Command) -> Document:
    """Time every kernel by itself, against what the machine does at best."""
    args, source, pipeline = command.args, command.source, command.pipeline
    graph: Graph = command("graph_after", source, pipeline, last_built(command.engine, pipeline))
    result: Profile = command("profile", command.cut_request())
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
        result = command("profile", command.cut_request())
    else:
        kernels = command("kernels", source, pipeline, True)
    document = command.about(source, pipeline, built=False)
    document |= {"target": target, "measured": measure}
    return command.written(document | lint_document(findings(graph, kernels, result, target)))
