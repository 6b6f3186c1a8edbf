"""`captures`: what the forward saves for the backward."""

import time

from relascope.commands import handing_on
from relascope.commands.shared import Command, Document
from relascope.engine.jobs.cut import forward_times, joint_of, measure_cuts
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.results import PYTORCH
from relascope.engine.protocol.times import BUDGETS, TorchSaved
from relascope.passes.cuts.cut import STRATEGIES, cut
from relascope.viz.rows import tables


def captures(command: Command) -> Document:
    """What the forward saves for the backward under one strategy."""
    args = command.args
    args.training = True
    handing_on.check_ending(args, *handing_on.LISTS)
    source, pipeline = command.source, command.pipeline
    started = time.perf_counter()
    prices = forward_times(command, command.request()) if args.prices == "measured" else ()
    chosen = command.cut(joint_of(command, source, pipeline, *prices))
    saved: TorchSaved | None = None  # by PyTorch, with --frontier in every budget
    if command("load", source).against == PYTORCH:
        saved = command("torch_saved", source, BUDGETS[args.frontier])
    took = time.perf_counter() - started
    points = [(args.strategy, chosen)]
    if args.frontier:
        others = (n for n, s in STRATEGIES.items() if not s.needs_budget)
        points += [(n, cut(chosen.joint, n)) for n in others if n != args.strategy]
    measured = measure_cuts(command, command.request(), points) if args.measure else ()
    found = zip(points, measured, strict=False)
    chosen.joint.peaks = {one.marked: point.peak_bytes for (_, one), point in found}
    document = {
        **command.about(source, pipeline, built=False),
        **tables.cut_document(chosen),
        "seconds": took,
        "rivals": tables.torch_saved_document(saved) if saved else None,
    }
    if args.frontier:
        document |= tables.frontier_document(chosen.joint)
    if measured:
        document["measured"] = plain(measured)
        if chosen.offloaded:
            document["measured"][0]["host_bytes"] = chosen.host_bytes
    if args.output:
        handing_on.captures(command, source, pipeline, chosen, saved)
    return document
