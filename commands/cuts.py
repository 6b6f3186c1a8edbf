"""`captures` and `gradients`."""

import argparse
import json
import time
from dataclasses import replace

from relascope.commands import handing_on
from relascope.commands.shared import (
    Connect,
    Document,
    EngineCalls,
    about,
    cut_of,
    pipeline_of,
    request_of,
    source_of,
    target_of,
)
from relascope.engine.jobs.cut import forward_times, joint_of, measure
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import PYTORCH
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import TorchSaved
from relascope.passes.catalogue import default_pipeline, gradients
from relascope.passes.cuts.cut import STRATEGIES, cut
from relascope.viz.rows import tables


def captures(args: argparse.Namespace, connect: Connect) -> Document:
    """What the forward saves for the backward under one strategy."""
    args.training = True
    handing_on.check_ending(args, ".html", ".json", ".csv")
    source, pipeline = source_of(args), pipeline_of(args)
    started = time.perf_counter()
    with EngineCalls(args, connect) as ask:
        measured = None
        if args.prices == "measured":
            measured = forward_times(ask, request_of(args, ask))
        chosen = cut_of(joint_of(ask, source, pipeline, measured), args)
        saved = _torch_saved(ask, source)
        document = {
            **about(args, source, pipeline, built=False),
            **tables.cut_document(chosen),
            "seconds": time.perf_counter() - started,
            "rivals": tables.torch_saved_document(saved) if saved else None,
        }
        if args.frontier:
            document |= tables.frontier_document(chosen.joint)
        if args.measure:
            points = [(args.strategy, chosen)]
            if args.frontier:
                others = (n for n, s in STRATEGIES.items() if not s.has_budget)
                points += [(n, cut(chosen.joint, n)) for n in others if n != args.strategy]
            document["measured"] = plain(measure(ask, request_of(args, ask), points))
        if args.output:

            def split() -> str:
                halves = ask("split", source, pipeline, chosen.ids)
                return json.dumps(plain(halves), ensure_ascii=False)

            handing_on.captures(args, ask, source, pipeline, chosen, document, saved, split)
    return document


def both_gradients(args: argparse.Namespace, connect: Connect) -> Document:
    """TVM's gradient beside PyTorch's: nodes, operators, captures and the largest error."""
    args.training, args.gradient = True, "tvm"
    ways = [replace(source_of(args), gradient=way) for way in gradients(args.engine)]
    rows = []
    with EngineCalls(args, connect) as ask:
        target = target_of(args, ask)
        for source in ways:
            pipeline = default_pipeline(args.engine, True, source.gradient)
            joint = joint_of(ask, source, pipeline)
            request = BuildRequest(source, pipeline, target).split_at(cut(joint).ids)
            errors = ask("check", request)
            rows.append(tables.gradient_row(source.gradient, joint, errors))
    return {
        "model": args.model,
        "engine": args.engine,
        "target": target,
        "dtype": args.dtype,
        "gradients": rows,
    }


def _torch_saved(ask: Ask, source: ModelSource) -> TorchSaved | None:
    """What PyTorch keeps; None of a program that came without it."""
    if ask("load", source).against != PYTORCH:
        return None
    saved: TorchSaved = ask("torch_saved", source)
    return saved
