"""The peak of a step of equal layers beside PyTorch's partitioner, over budgets, in MB.

The layers are Llama layers (`unseen.py`), as PyTorch's joint graph after Inductor's decompositions.
PyTorch cuts it within an `activation_memory_budget`; the strategy `peak` within that share of the
peak of `keep_all`, or at its lowest if that is higher. `passes.cuts.lifetimes` counts both; one
layer has a proven bound, too. PyTorch's solver takes minutes: `--resume` continues where FILE ends.
Returns 1 if relascope's peak is above PyTorch's, or rises as the budget falls.

`--measured` runs steps of `MODELS` that `torch.compile` compiles within a budget, and steps that
Relax builds within the measured peak, with PyTorch's gradient and one thread, timed in turns.
Returns 1 if relascope's take longer, or have a higher peak or a wrong gradient."""

import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
import unseen
from common import Row, finish, options, write
from torch._functorch import config as functorch

from relascope.engine.building.devices import default_target
from relascope.engine.in_process import load_engine
from relascope.engine.jobs.accuracy import LIMITS
from relascope.engine.jobs.cut import joint_of
from relascope.engine.measure import timing
from relascope.engine.measure.compare import Built, errors_of, memory_of, run_of
from relascope.engine.measure.memory import torch_peak, waiter
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.baselines.saved import joint_and_saved, joint_graph, partitions
from relascope.engine.server.builds import Builds
from relascope.engine.server.programs import Programs
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import Joint, cut
from relascope.passes.cuts.lifetimes import peak
from relascope.passes.pipeline import Pipeline, Step

SIZES = {1: 512, 16: 512, 24: 768, 32: 1024}  # tokens, by layers
BUDGETS = (0.30, 0.20, 0.15, 0.10, 0.05)

_GPT2 = "hf:gpt2?n_layer=12&n_embd=128&n_head=4&vocab_size=500&n_positions=128"
_bert, _gpt2 = ModelSource("bert_layer", 4, 128), ModelSource(_GPT2, 2, 128, weights="random")
MODELS = {
    name: replace(of, training=True, gradient="pytorch")
    for name, of in (("bert_layer", _bert), ("gpt2, 12 layers", _gpt2))
}
BACKENDS = {"aot_eager": "aot_eager_decomp_partition", "inductor": "inductor"}
MEASURED = (0.9, 0.7, 0.5, 0.3, 0.1)
TRIES = 4  # of a cut whose measured peak is within PyTorch's: what libraries take is not estimated


def _rows(layers: int, tokens: int) -> Iterator[Row]:
    ids = torch.zeros(2, tokens, dtype=torch.int64)
    found = partitions(unseen.Stack(layers, tokens), (ids,), BUDGETS)
    joint = Joint(joint_graph(found[0]))
    most, lowest = cut(joint, "keep_all").peak_bytes, cut(joint, "peak").peak_bytes
    for budget, partition in zip(BUDGETS, found, strict=True):
        theirs = joint_and_saved(partition)
        here = cut(joint, "peak", max(int(budget * most), lowest))
        row: Row = {"layers": layers, "tokens": tokens, "budget": budget}
        for whose, (of, kept) in ("PyTorch's ", theirs), ("our ", (joint, here.ids)):
            row[f"{whose}peak"] = round(peak(of, kept) / 1e6, 1)
            row[f"{whose}kept"] = round(of.bytes_of(kept) / 1e6, 1)
            row[f"{whose}work again"] = round(of.again_seconds(kept) / of.forward_seconds, 3)
        bound = here.least_peak_bytes
        row["least possible"] = bound and round(bound / 1e6, 1)
        yield row


def _measured(name: str, repeats: int, rows: list[Row]) -> Iterator[Row]:
    """Rows of a model that are not among `rows`."""
    there = {(r["sample"], r["budget"], r["backend"]) for r in rows}
    todo = [(b, k) for b in MEASURED for k in BACKENDS if (name, b, k) not in there]
    if not todo:
        return
    torch.set_num_threads(1)
    backend = load_engine("relax")
    programs = Programs(backend)
    pipeline = Pipeline((*default_pipeline("relax", True, "pytorch"), Step("masks_as_bits")))
    source, built = MODELS[name], dict[tuple[str, ...], tuple[Built, int, float]]()
    model = programs.loaded(source, silent).model
    target = default_target(backend.describe().targets, model.device)
    request = BuildRequest(source, pipeline, target, threads=1)
    ask = lambda what, *about: getattr(programs, what)(*about, progress=silent)  # noqa: E731
    joint = joint_of(ask, source, pipeline)
    lowest = cut(joint, "peak").peak_bytes

    def ours(most: int) -> tuple[Built, int, float]:
        """A build within a peak, with its own peak and error."""
        ids = cut(joint, "peak", max(most, lowest)).marked
        if ids not in built:
            made = Builds(programs).built(request.split_at(ids), silent)[1]
            error = max(c.max_rel for c in errors_of(made, silent))
            built[ids] = made, memory_of(made, True)[0] or 0, error
        return built[ids]

    for budget, kind in todo:
        torch._dynamo.reset()
        module = model.run if model.pairs else model.module
        theirs = model.eager(True, torch.compile(module, backend=BACKENDS[kind]))
        with functorch.patch(activation_memory_budget=budget):
            theirs()
        most = within = torch_peak(theirs, model.device)
        for _ in range(TRIES):
            step, held, error = ours(within)
            if held <= most or within <= lowest:
                break
            within = within * most // held
        runs = {"theirs": theirs, "ours": run_of(step, True)}
        taken = timing.interleave(runs, repeats, waiter(model.device), silent)
        row: Row = {"sample": name, "budget": budget, "backend": kind}
        row |= {"PyTorch's peak": round(most / 1e6, 1), "our peak": round(held / 1e6, 1)}
        for whose, what in ("PyTorch's", "theirs"), ("our", "ours"):
            row[f"{whose} ms"] = round(1e3 * statistics.median(chain(*taken[what])), 1)
        row["ratio"] = round(timing.ratio(taken["ours"], taken["theirs"]), 3)
        yield row | {"error": error, "load": round(os.getloadavg()[0], 1)}


def _slower(row: Row) -> list[str]:
    said = ["takes longer"] if row["ratio"] > 1 else []
    said += ["has a higher peak"] * (row["our peak"] > row["PyTorch's peak"])
    wrong = row["error"] > LIMITS["float32"].gradients
    where = f"{row['backend']} within {row['budget']}: "
    return [where + s for s in said + [f"is off by {row['error']:.1e}"] * wrong]


def main() -> int:
    """Print the table, and what misses its bar."""
    parser = options(__doc__, samples=False, repeats=8)
    parser.add_argument("--measured", action="store_true", help="time steps of models alone")
    parser.add_argument("--layers", type=int, action="append", choices=[*SIZES], metavar="N")
    parser.add_argument("--resume", action="store_true", help="what FILE lacks alone")
    args: Any = parser.parse_args()
    rows: list[Row] = []
    if args.resume and args.output is not None and args.output.exists():
        rows = json.loads(args.output.read_text(encoding="utf-8"))
    for name in MODELS if args.measured else ():
        for row in _measured(name, args.repeats, rows):
            print(*row.values(), file=sys.stderr)
            rows.append(row)
            write(args.output, rows)
    if args.measured:
        return finish(args, rows, _slower)
    for layers in args.layers or [*SIZES][1:]:
        if all(row["layers"] != layers for row in rows):
            rows += _rows(layers, SIZES[layers])
            write(args.output, rows)

    def missed(row: Row) -> list[str]:
        ours = row["our peak"]
        more = (r for r in rows if r["layers"] == row["layers"] and r["budget"] > row["budget"])
        said = ["is above PyTorch's"] if ours > row["PyTorch's peak"] else []
        return said + ["is higher than with more"] * any(ours > r["our peak"] for r in more)

    return finish(args, rows, missed)


if __name__ == "__main__":
    sys.exit(main())
