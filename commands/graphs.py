"""`models`, `passes` and `graph`."""

from pathlib import Path

from relascope.commands import handing_on
from relascope.commands.shared import Command, Document
from relascope.core.errors import EngineError
from relascope.engine.jobs.step import step
from relascope.engine.protocol.plain import plain
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import CATALOGUE, default_pipeline, gradients, names
from relascope.passes.catalogue import info as pass_info
from relascope.passes.catalogue.tvm_named import MARK
from relascope.samples import SAMPLES
from relascope.viz.rows import fields, tables


def models(command: Command) -> Document:
    """The built-in samples; with --search, what transformers, torchvision and timm have here.

    Parameters are counted without creating the weights. A search with a capital letter finds the
    classes of transformers, too: such as hf:BertForMaskedLM."""
    search = command.args.search
    if search is None:
        return {"models": tables.model_rows(SAMPLES.values(), ENGINES)}
    found = command("models", search)
    rows = [{**fields(m, "name parameters weights"), "class": m.kind} for m in found]
    return {"search": search, "models": rows}


def modules(command: Command) -> Document:
    """The modules of a model: what each is, what it gets and returns, and the time it takes.

    The whole model is run for that, and not imported. With --module, that one and those in it."""
    command.args.gradient = "tvm"
    source = command.source
    rows = command("modules", source)
    inside = f"{source.module}."
    own = [r for r in rows if not source.module or f"{r.path}.".startswith(inside)]
    return {"model": source.model, "engine": command.engine, "modules": tables.module_rows(own)}


def inputs(command: Command) -> Document:
    """What the inputs of a file's model are, which is not imported: types, ranges, open sizes."""
    command.args.gradient = "tvm"
    source = command.source
    found = command("inputs", source)
    rows = [{"input": t, "values": s} for t, s in zip(found.inputs, found.says, strict=True)]
    return {
        "model": source.model,
        "engine": command.engine,
        "inputs": rows,
        "sizes": plain(found.sizes),
        "sets": [Path(path).name for path, _ in source.tensors],
    }


def passes(command: Command) -> Document:
    """Every pass of the engine's catalogue, and the default pipelines; or one pass, in full; or,
    with the name `tvm:`, TVM's own pipelines.

    With --test, the examples of passes of one's own, run and compared."""
    args, ir = command.args, command.engine
    if args.test:
        return _tested(command)
    if (args.name or "").startswith(MARK):
        known = command("pipelines").pipelines
        chosen = args.name.removeprefix(MARK)
        if chosen and chosen not in known:
            message = f"TVM has no pipeline {chosen!r}."
            raise EngineError("usage", message, args.name, f"It has {', '.join(known)}.")
        return {
            "engine": ir,
            "pipelines": {MARK + n: t for n, t in known.items() if chosen in ("", n)},
        }
    if args.name is not None:
        example = command("example", args.name)
        entry = tables.pass_row(pass_info(ir, args.name))
        return {"engine": ir, "pass": entry, "example": plain(example)}
    pipelines = {"inference": default_pipeline(ir, False)}
    for way in gradients(ir):
        name = "training" if way == "tvm" else f"training_{way}"
        pipelines[name] = default_pipeline(ir, True, way)
    return {
        "engine": ir,
        "passes": [tables.pass_row(p) for p in CATALOGUE.values() if p.ir == ir],
        "pipelines": {name: str(pipeline) for name, pipeline in pipelines.items()},
    }


def _tested(command: Command) -> Document:
    args, ir = command.args, command.engine
    own = [n for n in names(ir) if pass_info(ir, n).own_file]
    if args.name is not None:
        own = [n for n in own if n == args.name]
    found = {name: command("pass_tests", name) for name in own}
    runs = [run for tests in found.values() for run in tests]
    if not runs:
        message = f"No {ir} pass of yours has an example."
        hint = "Write a function before_NAME(new), and after_NAME(new), beside the pass NAME."
        raise EngineError("usage", message, ", ".join(args.pass_file) or "--pass-file", hint)
    return {
        "engine": ir,
        "tests": [{**plain(run), "pass": run.pass_name, "passed": not run.said} for run in runs],
        "without": [name for name, tests in found.items() if not tests],
        "fails": any(run.said for run in runs),
    }


def graph(command: Command) -> Document:
    """The graph of a model, as imported, or with --passes after the pipeline."""
    args, source = command.args, command.source
    pipeline = command.pipeline if args.passes else None
    handing_on.check_ending(args)
    own = handing_on.overlay_text(args)
    info = command("load", source)
    if pipeline:
        step(command, source, pipeline).check()
    after = command("graph_after", source, pipeline, len(pipeline) - 1) if pipeline else info.graph
    overlays = command.own_code("overlays", after, str(args.overlay), own) if own else {}
    if args.output:
        handing_on.graph(command, info, after, pipeline, overlays)
    document = tables.model_document(info, command.engine, after, pipeline)
    return document | ({"overlays": tables.overlay_rows(after, overlays)} if own else {})
