"""Compare both engines with PyTorch's own database of operators: right, refused, or wrong.

Every entry of `torch.testing._internal.common_methods_invocations.op_db` becomes a module that
calls it on a few of its samples. It is traced, imported, built and run, and if the entry has
autograd its gradient is taken, split, built and run, as by `add_tvm_dispatch`. The build runs on
the sample's values, on values at edges (zeros, halves, whole numbers) and on some that are not
finite. Outputs and gradients are compared with PyTorch's: shapes, dtypes, values, NaN and infinity,
within `_TOLERANCE`; PyTorch's float64 decides where float32 differs.

Results are JSON lines in out/operators, so that a stopped run continues there. Returns 1 if
anything is wrong or crashed."""

import argparse
import io
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/both/against_pytorch"))

import judged
from defaults import Call, calls
from judged import ROOT, Row, Tensors
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import Model, model_from_module, seeded
from relascope.engine.registry import ENGINES

PAGE = ROOT / "docs/operators.md"  # what `--page` writes, below the words at its top
PHASES = ("forward", "gradient", "file", "in place")
"""Of a live module its outputs, then its gradients; the outputs of its trace written to a file and
read again; and those of the entry's form in place."""
_DTYPES = (torch.float32, torch.int64, torch.bool)
_MOST_ELEMENTS = 20_000
_PHASE_SECONDS = 60
_PER_PROCESS = 40  # entries, after which a process with all that it has built is left behind
_TOLERANCE, _TOLERANCE_64 = 1e-5, 1e-12  # of a tensor's scale; ten times that for gradients
_EDGES = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 2.0, -2.0, 3.0, -3.0, 6.0, 0.25)
_STRANGE = (float("nan"), float("inf"), -float("inf"))
_UNSET = ("empty", "new_empty")  # what memory holds is nothing to compare
_TIED = ("sort", "argsort", "msort", "topk", "kthvalue", "mode", "median", "nanmedian")
"""Which of equal elements they take is free; edges, integers and bools have many."""
_FREE = (*_TIED, "int", "short", "char", "byte", "long", "bucketize", "searchsorted")
"""What becomes of edges, or of what is not finite, is free in PyTorch: the last two read a sequence
that is to be sorted, and these are not."""


def database() -> list[Any]:
    """PyTorch's entries; they take seconds to import. Those that draw set no seed of their own,
    which a trace does not have: every run here has one."""
    from torch.testing._internal import common_methods_invocations as theirs

    theirs.wrapper_set_seed = lambda call, *args, **options: call(*args, **options)
    return list(theirs.op_db)


class NotCompared(Exception):
    """Why a sample cannot be compared with PyTorch."""


class _Call(torch.nn.Module):
    """An entry on one sample: its tensors are inputs; `in_place` changes a copy of the first."""

    def __init__(self, call: Callable[..., Any], sample: Any, in_place: bool = False) -> None:
        super().__init__()
        self.call, self.in_place = call, in_place
        self.leaves, self.spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors: list[torch.Tensor] = []
        self.places: list[int | None] = []
        for leaf in self.leaves:
            place = None
            if isinstance(leaf, torch.Tensor):
                place = next((i for i, t in enumerate(tensors) if t is leaf), len(tensors))
                tensors[place:] = [leaf]
            self.places.append(place)
        self.tensors = tuple(t.detach() for t in tensors)
        if any(t.layout != torch.strided or t.is_complex() or t.is_quantized for t in tensors):
            raise NotCompared("sparse, complex or quantized")

    def forward(self, *given: torch.Tensor) -> Tensors:
        pairs = zip(self.leaves, self.places, strict=True)
        leaves = [v if p is None else given[p] for v, p in pairs]
        first, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        first = first.clone() if self.in_place else first
        made = pytree.tree_leaves(self.call(first, *args, **kwargs))
        return tuple(t for t in made if isinstance(t, torch.Tensor))


class _Holder(torch.nn.Module):
    """Gives the call a module's path, which a refusal must name."""

    def __init__(self, part: _Call) -> None:
        super().__init__()
        self.part = part

    def forward(self, *given: torch.Tensor) -> Tensors:
        """The part's."""
        return self.part(*given)


def samples(entry: Any, dtype: torch.dtype, most: int) -> list[Any]:
    """A few of an entry's samples, the same each time, spread over all."""
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    found = []
    for sample in entry.sample_inputs("cpu", dtype, requires_grad=False):
        leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        if sum(t.numel() for t in leaves if isinstance(t, torch.Tensor)) <= _MOST_ELEMENTS:
            found.append(sample)
        if len(found) == 300:
            break
    if len(found) <= most:
        return found
    # The first are the plainest; the very last are often empty tensors.
    return [found[i * len(found) // most] for i in range(most)]


def jobs(entry: Any, most: int) -> Iterator[tuple[torch.dtype, int, Any]]:
    """Every sample of an entry that is tried: dtype, number, sample. In float32 these are `most`,
    in each other dtype a third of that."""
    for dtype in (*_DTYPES, torch.float64) if isinstance(entry, Call) else _DTYPES:
        if dtype in entry.supported_dtypes("cpu"):
            try:
                chosen = samples(entry, dtype, most if dtype == torch.float32 else most // 3)
            except Exception as error:  # PyTorch's own generator of samples
                chosen = [error]
            yield from ((dtype, i, s) for i, s in enumerate(chosen))


def _run(module: torch.nn.Module, inputs: Tensors) -> Tensors:
    with torch.no_grad(), seeded(0):
        return tuple(t.detach().clone() for t in module(*(t.clone() for t in inputs)))


def _gradients(
    module: torch.nn.Module, inputs: Tensors, weights: Tensors, spread: bool = False
) -> Tensors:
    """Of the floating inputs, zeros where nothing depends on one; if `spread`, given as every
    second element of memory, and attention takes its plain kernel."""
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
    wanted = [t for t in leaves if t.requires_grad]
    plain = sdpa_kernel(SDPBackend.MATH) if spread else nullcontext()
    with seeded(0), plain:
        # An operator in place may not change a leaf.
        copies = (torch.stack([t, t], -1)[..., 0] if spread else t.clone() for t in leaves)
        made = module(*(c if t.requires_grad else t for c, t in zip(copies, leaves, strict=True)))
        floating = [o for o in made if o.is_floating_point()]
        used = [(o, w) for o, w in zip(floating, weights, strict=True) if o.requires_grad]
        if not used or not wanted:
            raise NotCompared("no output has a gradient")
        found = torch.autograd.grad(
            [o for o, _ in used], wanted, [w.to(o.dtype) for o, w in used], allow_unused=True
        )
    return tuple(
        torch.zeros_like(t) if g is None else g.detach().to_dense()
        for t, g in zip(wanted, found, strict=True)
    )


def _variants(
    entry: Any, dtype: torch.dtype, inputs: Tensors, edges_too: bool
) -> Iterator[tuple[str, Tensors]]:
    """The sample's values, and others for the same program."""
    yield "", inputs
    if isinstance(entry, Call):
        for number, values in enumerate(entry.values(dtype)[1:], 1):
            yield f"values {number}", values
    if isinstance(entry, Call) and edges_too:
        # Tiny places of a grid are in the image's middle, where it has a bend; tanhshrink of them
        # is a difference of what is all but equal.
        tiny = [] if entry.name in ("grid_sample", "tanhshrink") else [("tiny", 1e-6)]
        for name, factor in (*tiny, ("large", 1e3)):
            yield name, tuple(t * factor if t.is_floating_point() else t for t in inputs)
    if edges_too and any(t.is_floating_point() and t.numel() for t in inputs):
        edges, strange = torch.tensor(_EDGES), torch.tensor(_STRANGE)
        made, more, shift = [], [], 0
        for t in inputs:
            if t.is_floating_point() and t.numel():
                places = torch.arange(t.numel())
                made.append(edges[(places + shift) % len(edges)].to(t.dtype).reshape(t.shape))
                flat = t.clone().flatten()
                flat[shift % 5 :: 5] = strange[places[: len(flat[shift % 5 :: 5])] % 3].to(t.dtype)
                more.append(flat.reshape(t.shape))
                shift += 3
            else:
                made.append(t)
                more.append(t)
        yield "edges", tuple(made)
        yield "strange", tuple(more)


def look(
    backend: Any, target: str, entry: Any, job: tuple[Any, ...], wanted: Sequence[str]
) -> Iterator[Row]:
    """Try a sample in the `wanted` phases: before each a row without a verdict, then one with."""
    dtype, number, sample = job
    base = {"op": entry.formatted_name, "dtype": str(dtype)[6:], "sample": number}
    base["name"] = entry.full_name
    trains = (
        dtype == torch.float32 or isinstance(entry, Call)
    ) and dtype in entry.supported_backward_dtypes("cpu")
    phases = [p for p in wanted if p != "gradient" or (trains and entry.supports_autograd)]
    if entry.inplace_variant is None or getattr(sample, "broadcasts_input", True):
        phases = [p for p in phases if p != "in place"]
    try:
        module = _comparable(entry, sample, dtype)
    except NotCompared as why:
        for phase in phases:
            yield {**base, "phase": phase, "verdict": "skipped", "message": str(why)}
        return
    base["call"] = _words(module.part)
    reference = entry.reference if isinstance(entry, Call) else None
    spare = reference and _Holder(_Call(reference, sample)).train()
    made: dict[str, tuple[_Holder, Model, LiveProgram]] = {}
    for phase in phases:
        yield {**base, "phase": phase}
        began = time.perf_counter()
        way = "forward" if phase == "gradient" else phase
        try:
            if way not in made:
                if way == "in place":
                    module = _comparable(entry, sample, dtype, True)
                made[way] = module, *_imported(backend, target, module, way == "file")
            more = way == "forward" and entry.name not in _FREE
            for variant, inputs in _variants(entry, dtype, module.part.tensors, more):
                if variant == "strange" and _unlike(entry, phase):
                    continue
                found = _hold(*made[way], inputs, phase == "gradient", spare)
                if found is not None:
                    seconds = round(time.perf_counter() - began, 2)
                    verdict = {"verdict": "wrong" if found else "right", "message": found}
                    yield {**base, "phase": phase, "on": variant, **verdict, "seconds": seconds}
        except NotCompared as why:
            yield {**base, "phase": phase, "verdict": "skipped", "message": str(why)}
        except Exception as error:
            yield {**base, "phase": phase, **judged.failed(error)}


def _unlike(entry: Any, phase: str) -> bool:
    """Whether PyTorch has no result to compare with where values are not finite: those of its
    Fourier transforms and triangular systems depend on their order, and one of its gradients reads
    outside of memory."""
    around = any(padding in entry.full_name for padding in ("border", "reflection"))
    reads = phase == "gradient" and entry.name == "grid_sample" and around
    return reads or entry.name.startswith(("fft.", "linalg.solve_triangular"))


def _comparable(entry: Any, sample: Any, dtype: torch.dtype, in_place: bool = False) -> _Holder:
    """A module that calls an entry on a sample. Raises NotCompared if no result is comparable."""
    if isinstance(sample, Exception):
        raise NotCompared(f"no sample: {sample}")
    if entry.name.startswith(_UNSET):
        raise NotCompared("returns memory as it is")
    if entry.name in _TIED and dtype != torch.float32:
        raise NotCompared("which of equal elements it takes is free")
    module = _Holder(_Call(entry.inplace_variant if in_place else entry.op, sample, in_place))
    try:
        theirs, again = (_run(module, module.part.tensors) for _ in range(2))
    except Exception as error:
        raise NotCompared(f"PyTorch raises {type(error).__name__}") from error
    if not theirs:
        raise NotCompared("returns no tensor")
    if any(t.is_complex() or t.layout != torch.strided for t in theirs):
        raise NotCompared("complex or sparse")
    if judged.differences(again, theirs, lambda: theirs, 0.0):
        raise NotCompared("draws random numbers that no seed fixes")
    return module


def _imported(backend: Any, target: str, module: _Holder, file: bool) -> tuple[Model, LiveProgram]:
    """A module's trace, from a file if `file`, and an engine's import of it."""
    inputs: Tensors = module.part.tensors
    names = tuple(f"x{i}" for i in range(len(inputs)))
    source = ModelSource("operator", training=True)
    model = model_from_module(module.train(), names, inputs, source, silent)
    if file:
        written = io.BytesIO()
        torch.jit.save(model.traced, written)
        read_again = torch.jit.load(io.BytesIO(written.getvalue()))
        model = model_from_module(read_again, names, inputs, source, silent)
    return model, LiveProgram(backend, model, ("min_cut", None), target)


def _hold(
    module: _Holder,
    model: Model,
    live: LiveProgram,
    inputs: Tensors,
    gradient: bool,
    spare: _Holder | None,
) -> str | None:
    """How a build differs on some values; None if PyTorch refuses them."""
    own = all(a is b for a, b in zip(inputs, model.inputs, strict=True))
    try:
        theirs = _run(module, inputs)
        weights = model.grad_outs()
        if gradient:
            theirs += _gradients(module, inputs, weights)
        if not own and judged.differences(
            _run(model.traced, inputs), _run(module, inputs), lambda: (), 0.0
        ):
            return None  # the trace holds for the sample's values only, which a note says
    except NotCompared:
        raise
    except Exception as error:
        if not own:
            return None
        raise NotCompared(f"PyTorch raises {type(error).__name__}: {error}") from error
    own_double = torch.float64 in (t.dtype for t in inputs)

    def judge() -> Tensors:
        """PyTorch's float64; where that itself is judged, its rounding by that of float32."""
        given = tuple(t.float() if t.dtype == torch.float64 else t for t in inputs)
        given = given if own_double else judged.double(inputs)
        found = _run(module, given)
        if gradient:
            found += _gradients(module, given, weights)
        if not own_double:
            return found
        pairs = zip(theirs, found, strict=True)
        return tuple(t + (f - t).nan_to_num(0, 0, 0) * 2.0**-27 for t, f in pairs)

    tolerance = _TOLERANCE_64 if own_double else _TOLERANCE
    values = dict(zip(model.input_names, inputs, strict=True))
    values.update({**model.parameters, **model.buffers})
    values.update(draw_masks(live.masks, 0, torch.device("cpu")))
    results = [f"output {i}" for i in range(len(model.outputs_flat))]
    if not gradient:
        ours = live.forward(values)
        other = [partial(_run, spare, inputs)] if spare else []
        return judged.differences(ours[: len(theirs)], theirs, judge, tolerance, results, other)
    wanted = [n for n, t in zip(model.input_names, inputs, strict=True) if t.is_floating_point()]
    step = live.step(wanted)
    outputs, captures = step.forward(values)
    values.update(zip(step.grad_outs, weights, strict=True))
    gradients = step.backward({**values, **captures})
    ours = (*outputs[: len(model.outputs_flat)], *(gradients[n] for n in wanted))
    named = [*results, *(f"gradient of {n}" for n in wanted)]

    def again(module: _Holder, spread: bool) -> Tensors:
        made = theirs if spread else _run(module, inputs)
        return (*made[: len(model.outputs_flat)], *_gradients(module, inputs, weights, spread))

    others = [partial(again, module, True)] if spare or not own else []
    others += [partial(again, spare, False)] if spare else []
    return judged.differences(ours, theirs, judge, 10 * tolerance, named, others)


def _words(part: _Call) -> str:
    """The call with tensors as their types."""
    leaves = [
        f"{str(v.dtype)[6:]}{list(v.shape)}" if isinstance(v, torch.Tensor) else v
        for v in part.leaves
    ]
    first, args, kwargs = pytree.tree_unflatten(leaves, part.spec)
    words = [str(a) for a in (first, *args)] + [f"{k}={v}" for k, v in kwargs.items()]
    return ", ".join(words)[:300]


def _work(
    phases: Sequence[str],
    most: int,
    ir: str,
    target: str,
    names: list[str],
    skip: int,
    pipe: Connection,
) -> None:
    """In a child: look at entries, and send every row."""
    backend, by_name = load_engine(ir), {e.formatted_name: e for e in (*database(), *calls())}
    for name in names:
        for index, job in enumerate(jobs(by_name[name], most)):
            if index >= skip:
                for row in look(backend, target, by_name[name], job, phases):
                    pipe.send({**row, "index": index})
        pipe.send({"op": name, "end": True})
        skip = 0
    pipe.close()


def run(ir: str, names: list[str], work: Callable[..., None], write: Callable[[Row], None]) -> None:
    """Look at entries in children, one after the other; a child that dies is a crash of its sample.
    In a child, `work` gets the engine, target and names, the number of samples to leave out, and a
    pipe, through which it sends rows."""
    began = time.perf_counter()
    load_engine(ir)
    torch.set_num_threads(1)
    target = judged.target_of(ir)
    rest, skip = list(names), 0
    while rest:
        own = partial(work, ir, target, rest[:_PER_PROCESS], skip)
        last: Row = {}
        for row in judged.child(own, _PHASE_SECONDS):
            if row.get("end"):
                write(row)
                rest.remove(row["op"])
                skip, last = 0, {}
            elif "died" not in row:
                last = row
                if "verdict" in row:
                    write(row)
            elif rest:
                if not last or "verdict" in last:
                    last = {"op": rest[0], "phase": "", "index": last.get("index", skip), **last}
                write({**last, "verdict": "crash", "message": row["died"]})
                skip = last["index"] + 1
    print(f"{ir}: {time.perf_counter() - began:.0f} s")


def resume(
    path: Path, ir: str, names: list[str], chosen: bool, work: Callable[..., None]
) -> list[Row]:
    """Run the entries that a file of rows lacks, or all if they were chosen, whose rows are then
    printed, too. Returns the verdicts in the file."""
    rows = judged.read(path)
    done = {r["op"] for r in rows if r.get("end")} - set(names if chosen else ())
    judged.begin(path, (r for r in rows if r["op"] in done))

    def write(row: Row) -> None:
        judged.keep(path, row)
        if chosen and "verdict" in row:
            said = ("op", "dtype", "sample", "phase", "on", "verdict", "message", "at")
            print(*(row[k] for k in said if k in row))

    run(ir, [n for n in names if n not in done], work, write)
    return judged.tried(path)


def verdicts(rows: Iterable[Row], phase: str, dtype: str = "") -> dict[str, str]:
    """By entry: "wrong", "crash", "right" (in every sample), "elements" (in every sample but
    refused ones with a tensor without elements), "part" (others are refused), or "refused"."""
    seen: dict[str, Counter[str]] = {}
    for row in rows:
        if row.get("phase") == phase and (not dtype or row["dtype"] == dtype):
            empty = row["verdict"] == "refused" and "without elements" in row["message"]
            seen.setdefault(row["op"], Counter())["empty" if empty else row["verdict"]] += 1
    result = {}
    for name, found in seen.items():
        bad = next((v for v in ("wrong", "crash") if found[v]), "")
        if found["refused"] or not found["right"]:
            refused = found["refused"] or found["empty"]
            good = "part" if found["right"] else "refused" if refused else "skipped"
        else:
            good = "elements" if found["empty"] else "right"
        result[name] = bad or good
    return result


def summary(ir: str, rows: list[Row]) -> int:
    """Print counts of entries by their verdict; 1 where anything is wrong or crashed."""
    print(ir)
    for phase in PHASES:
        for dtype in ("float32", "float64", "int64", "bool"):
            found = Counter(verdicts(rows, phase, dtype).values())
            if found:
                counts = ", ".join(f"{v} {n}" for v, n in sorted(found.items()))
                print(f"  {phase} {dtype}: {counts}")
    return int(any(r["verdict"] in ("wrong", "crash") for r in rows))


_GROUPS = {
    "nn.functional": "Neural networks (`torch.nn.functional`)",
    "": "Tensors (`torch`)",
    "linalg": "Linear algebra (`torch.linalg`)",
    "special": "Special functions (`torch.special`)",
    "fft": "Fourier transforms (`torch.fft`)",
    "masked": "Masked reductions (`torch.masked`)",
    "signal": "Windows (`torch.signal`)",
}


def page(rows: dict[str, list[Row]]) -> str:
    """Each engine's result for each entry, as Markdown; `rows` are by engine."""
    columns = [(p, ir) for p in PHASES[:2] for ir in rows]
    found = {(p, ir): verdicts(rows[ir], p) for p, ir in columns}
    reasons: dict[str, str] = {}
    for ir, own in rows.items():
        for row in own:
            if row["verdict"] not in ("right", "skipped"):
                reasons.setdefault(row["op"], f"{ir.title()}: {judged.short(row['message'])}")
    lines = [
        PAGE.read_text(encoding="utf-8").partition("\n| | ")[0],
        "| | " + " | ".join(f"{ir.title()}, {p}" for p, ir in columns) + " |",
    ]
    lines.append("|---|" + "---:|" * len(columns))
    for verdict in ("right", "elements", "part", "refused", "wrong", "crash"):
        counts = [
            sum(v == verdict for v in verdicts(rows[ir], p, "float32").values())
            for p, ir in columns
        ]
        lines.append(f"| {verdict} | " + " | ".join(map(str, counts)) + " |")
    names = {e.formatted_name: e.full_name for e in database()}
    groups: dict[str, list[str]] = {g: [] for g in _GROUPS}
    for name, full in names.items():
        head = full.rpartition(".")[0]
        head = next((g for g in _GROUPS if g and head.startswith(g)), "")
        groups[head].append(name)
    for group, members in groups.items():
        lines += ["", f"## {_GROUPS[group]}", ""]
        lines.append("| | " + " | ".join(f"{ir.title()}, {p}" for p, ir in columns) + " | why |")
        lines.append("|---|" + "---|" * (len(columns) + 1))
        neither = []
        for name in members:
            cells = [found[c].get(name, "") for c in columns]
            if set(cells) <= {"refused", "skipped", ""}:
                neither.append(names[name])
                continue
            words = [*("" if c == "skipped" else c for c in cells), reasons.get(name, "")]
            lines.append(f"| `{names[name]}` | " + " | ".join(words) + " |")
        if neither:
            listed = ", ".join(f"`{n}`" for n in dict.fromkeys(neither))
            lines += ["", f"Neither engine takes, in words: {listed}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Look at all requested entries; 1 if anything is wrong or crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--op", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--phase", choices=PHASES, action="append")
    parser.add_argument("--samples", type=int, default=3, metavar="N", help="of each, in float32")
    parser.add_argument("--defaults", action="store_true", help="the calls of defaults.py instead")
    parser.add_argument("--page", action="store_true", help="write docs/operators.md")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    folder = args.folder or ROOT / ("out/defaults" if args.defaults else "out/operators")
    entries = calls() if args.defaults else database()
    phases = args.phase or (PHASES[:2] if args.defaults else PHASES)
    engines = args.engine or list(ENGINES)
    if len(engines) > 1:  # one TVM a process
        status = judged.apart(engines)
        if args.page:
            found = {e: judged.tried(folder / f"{e}.jsonl") for e in engines}
            PAGE.write_text(page(found), encoding="utf-8")
        return status
    path = folder / f"{engines[0]}.jsonl"
    late = ("linalg", "fft", "special", "masked", "signal", "_")  # what models rarely need
    names = sorted((e.formatted_name for e in entries), key=lambda n: n.startswith(late))
    if args.op:
        names = [e.formatted_name for e in entries if {e.name, e.formatted_name} & set(args.op)]
    work = partial(_work, phases, args.samples)
    return summary(engines[0], resume(path, engines[0], names, bool(args.op), work))


if __name__ == "__main__":
    raise SystemExit(main())
