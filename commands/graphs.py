"""`models`, `passes` and `graph`."""

import argparse
from pathlib import Path

from relascope.commands import handing_on
from relascope.commands.shared import Connect, Document, EngineCalls, pipeline_of, source_of
from relascope.core.errors import EngineError
from relascope.engine.jobs.step import step
from relascope.engine.protocol.plain import plain
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import default_pipeline, gradients, names
from relascope.passes.catalogue import info as pass_info
from relascope.passes.catalogue.tvm_named import MARK
from relascope.samples import SAMPLES
from relascope.viz.rows import tables


def models(args: argparse.Namespace, connect: Connect) -> Document:
    """The built-in samples; with --search, what transformers, torchvision and timm have here.

    Parameters are counted without building the weights. A search with a capital letter finds the
    classes of transformers, too: such as hf:BertForMaskedLM.
    """
    if args.search is None:
        return {"models": tables.model_rows(SAMPLES.values(), ENGINES)}
    with EngineCalls(args, connect) as ask:
        return {"search": args.search, "models": tables.named_rows(ask("models", args.search))}


def modules(args: argparse.Namespace, connect: Connect) -> Document:
    """The modules of a model: what each is, what it gets and returns, and the time it takes.

    The whole model is run for that, and not imported. With --module, that one and those in it.
    """
    args.gradient = "tvm"
    source = source_of(args)
    with EngineCalls(args, connect) as ask:
        rows = ask("modules", source)
    inside = f"{source.module}."
    own = [r for r in rows if not source.module or f"{r.path}.".startswith(inside)]
    return {"model": source.model, "engine": args.engine, "modules": tables.module_rows(own)}


def inputs(args: argparse.Namespace, connect: Connect) -> Document:
    """What the inputs of a file's model are, which is not imported: types, ranges, open sizes."""
    args.gradient = "tvm"
    source = source_of(args)
    with EngineCalls(args, connect) as ask:
        found = ask("inputs", source)
    rows = [{"input": t, "values": s} for t, s in zip(found.inputs, found.says, strict=True)]
    return {
        "model": source.model,
        "engine": args.engine,
        "inputs": rows,
        "sizes": plain(found.sizes),
        "sets": [Path(path).name for path, _ in source.tensors],
    }


def passes(args: argparse.Namespace, connect: Connect) -> Document:
    """Every pass of the engine's catalogue, and the default pipelines; or one pass, in full; or,
    with the name `tvm:`, TVM's own pipelines.

    With --test, the examples of passes of one's own, run and compared.
    """
    if args.test:
        return _tested(args, connect)
    if (args.name or "").startswith(MARK):
        with EngineCalls(args, connect) as ask:
            known = ask("pipelines").pipelines
        chosen = args.name.removeprefix(MARK)
        if chosen and chosen not in known:
            message = f"TVM has no pipeline {chosen!r}."
            raise EngineError("usage", message, args.name, f"It has {', '.join(known)}.")
        return {
            "engine": args.engine,
            "pipelines": {MARK + n: t for n, t in known.items() if chosen in ("", n)},
        }
    if args.name is not None:
        with EngineCalls(args, connect) as ask:
            example = ask("example", args.name)
        entry = tables.pass_row(pass_info(args.engine, args.name))
        return {"engine": args.engine, "pass": entry, "example": plain(example)}
    pipelines = {"inference": default_pipeline(args.engine, False)}
    for way in gradients(args.engine):
        name = "training" if way == "tvm" else f"training_{way}"
        pipelines[name] = default_pipeline(args.engine, True, way)
    return {
        "engine": args.engine,
        "passes": tables.pass_rows(args.engine),
        "pipelines": {name: str(pipeline) for name, pipeline in pipelines.items()},
    }


def _tested(args: argparse.Namespace, connect: Connect) -> Document:
    own = [n for n in names(args.engine) if pass_info(args.engine, n).own_file]
    if args.name is not None:
        own = [n for n in own if n == args.name]
    with EngineCalls(args, connect) as ask:
        found = {name: ask("pass_tests", name) for name in own}
    runs = [run for tests in found.values() for run in tests]
    if not runs:
        message = f"No {args.engine} pass of yours has an example."
        hint = "Write a function before_NAME(new), and after_NAME(new), beside the pass NAME."
        raise EngineError("usage", message, ", ".join(args.pass_file) or "--pass-file", hint)
    return {
        "engine": args.engine,
        "tests": [{**plain(run), "pass": run.pass_name, "passed": not run.said} for run in runs],
        "without": [name for name, tests in found.items() if not tests],
        "fails": any(run.said for run in runs),
    }


def graph(args: argparse.Namespace, connect: Connect) -> Document:
    """The graph of a model, as imported, or with --passes after the pipeline."""
    source = source_of(args)
    pipeline = pipeline_of(args) if args.passes else None
    handing_on.check_ending(args)
    with EngineCalls(args, connect) as ask:
        info = ask("load", source)
        if pipeline:
            step(ask, source, pipeline).check()
        after = ask("graph_after", source, pipeline, len(pipeline) - 1) if pipeline else info.graph
        if args.output:
            handing_on.graph(args, ask, info, after, pipeline)
    return tables.model_document(info, args.engine, after, pipeline)
