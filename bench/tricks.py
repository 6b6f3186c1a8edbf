"""Print what each trick of the CPU's kernels buys: the time without it over the time with it.

Run `python bench/tricks.py` from the project's root; name samples to have only those, add
`--engine`, `--trick NAME` (repeat), `--target TEXT`, `--rounds N`, `--seconds S` of each timing. In
every round the program is built as it is, once more (the noise), and without each trick that it
uses; each build is timed by itself, on one thread and on all, by the processor's time and by the
clock, for where its memory lies counts as much as many a trick.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common
from common import ENGINES, Row

from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline, info

CASES = (
    ModelSource("bert_layer", 1, 14),
    ModelSource("bert_layer", 8, 128),
    ModelSource("bert_layer", 1, 14, training=True),
    ModelSource("bert_layer", 8, 128, training=True),
    *map(ModelSource, ("resnet", "super_resolution", "gpt2_block", "vit")),
    ModelSource("bert_layer", 1, 1024),
)
KERNELS, OURS = "relascope.engine.cpu_kernels", "relascope.engine.{ir}"
OPENBLAS, BLAS = "-libs=openblas", {"relax": "-libs=blas", "relay": "-libs=mkl"}
TOUCHED: set[str] = set()
"""Gets something when what is left out would have been used."""


@dataclass(frozen=True)
class Trick:
    """Something that can be left out while a program is built, or while it runs.

    Args:
        where: "module:attribute" that is replaced while it is built.
        off: from what is there to what stands in for it; says in `TOUCHED` that it was used.
        running: replaces something of what was built; False where the trick is not used.
        blas: without it, the target's library is PyTorch's.
        engines: that have it.
    """

    where: str = ""
    off: Callable[[Any], Any] = lambda theirs: theirs
    running: Callable[[Any], Any] = lambda built: True
    blas: bool = False
    engines: tuple[str, ...] = ENGINES

    def place(self, ir: str) -> tuple[Any, str]:
        """What has the attribute that `where` names, and the attribute's name."""
        module, _, path = self.where.format(ir=ir).partition(":")
        *inner, name = path.split(".")
        return functools.reduce(getattr, inner, import_module(module)), name


def giving(value: Any) -> Callable[[Any], Any]:
    """Of a function, one that gives another value, or what `value` makes of the arguments."""

    def off(theirs: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            found = theirs(*args)
            made = value(*args) if callable(value) else value
            if found is not made:
                TOUCHED.add("")
            return made

        return call

    return off


class Fresh:
    """A pool that keeps nothing."""

    nbytes = 0

    def again(self, key: Any) -> None:
        """Nothing is kept."""

    def fresh(self, key: Any, shape: Any, dtype: Any, device: Any) -> Any:
        """New memory."""
        import torch

        return torch.empty(tuple(shape), dtype=dtype, device=device)


def fresh_masks(built: Any) -> bool:
    """New memory for masks each time."""
    object.__setattr__(built, "room", Fresh())
    return bool(built.program.masks)


def fresh_results(built: Any) -> bool:
    """New memory for results each time."""
    for compiled in vars(built.step).values():
        if hasattr(compiled, "_room"):
            compiled._room = Fresh()
    return True


def theirs_draws(built: Any) -> bool:
    """PyTorch draws the masks."""
    draw = built.masks

    def masks(seed: int | None) -> Any:
        from relascope.engine.cpu_kernels.dropout_masks import DRAWING

        with replaced(DRAWING, "kernel", lambda: None):
            return draw(seed)

    object.__setattr__(built, "masks", masks)
    return bool(built.program.masks)


def products_of_the_library(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Small batched products as the library's."""

    def call(left: Any, right: Any, *turned: bool) -> Any:
        from relascope.engine.relay.kernels.blas import _stage

        TOUCHED.add("")
        shape = theirs(left, right, *turned).shape
        return _stage("tvm.contrib.mkl.batch_matmul", tuple(shape), left, right, *turned)

    return call


first = giving(lambda one, *rest: one)
relay, relax = {"engines": ("relay",)}, {"engines": ("relax",)}
TRICKS = {
    "packed weights": Trick(f"{OURS}.kernels.schedules:pack", first, **relay),
    "packed constants": Trick(f"{KERNELS}.packed_matmul:tile", giving(None), **relax),
    "strips": Trick(f"{KERNELS}.packed_matmul:strip", giving(None)),
    "row products": Trick(f"{KERNELS}.packed_matmul:row_tile", giving(None)),
    "outer products": Trick(f"{KERNELS}.packed_matmul:outer_tile", giving(None)),
    "prefetch": Trick(f"{OURS}.kernels.schedules:read_ahead", giving(lambda _, kernel: kernel)),
    "small products": Trick(
        f"{OURS}.kernels.blas:small_products", products_of_the_library, **relay
    ),
    "attention": Trick(
        f"{OURS}.kernels.attention:_AttentionFinder.attention", giving(None), **relax
    ),
    "vector math": Trick(
        f"{KERNELS}.vector_math:VectorMath.used", giving(lambda *_: nullcontext())
    ),
    "conv tiles": Trick(f"{OURS}.kernels.convolution:_entity", giving(None), **relay),
    "conv weights": Trick(f"{OURS}.kernels.conv_weights:laid_out", first, **relay),
    "OpenBLAS": Trick(blas=True),
    "drawn masks": Trick(running=theirs_draws),
    "pooled masks": Trick(running=fresh_masks),
    "pooled results": Trick(running=fresh_results, **relay),
}


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute with another value for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def main() -> int:
    """Measure and print."""
    parser = common.options(__doc__, repeats=0)
    parser.add_argument("--trick", action="append", choices=list(TRICKS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S")
    parser.add_argument("--target", metavar="TEXT", help="the best with OpenBLAS if left out")
    parser.add_argument("--case", type=int, action="append", metavar="K", help="of CASES, from 0")
    args = parser.parse_args()
    rows: list[Row] = []
    engines = args.engine or ENGINES
    for ir in engines if len(engines) > 1 else ():  # a process has one TVM
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable, __file__, *sys.argv[1:], "--engine", ir, "-o", file.name]
            subprocess.run(command, check=True)
            rows += common.json.loads(Path(file.name).read_text())
    for case, source in enumerate(CASES if len(engines) == 1 else ()):
        chosen = not args.samples or source.model in args.samples
        if chosen and (args.case is None or case in args.case):
            rows += measured(engines[0], source, args.trick or list(TRICKS), args)
            common.table(rows)
            common.write(args.output, rows)
    if len(engines) > 1:
        common.write(args.output, rows)
    return 0


def measured(ir: str, source: ModelSource, names: list[str], args: Any) -> list[Row]:
    """A row a trick that the program of a source uses."""
    from relascope.engine.building.threads import set_threads
    from relascope.engine.in_process import load_engine
    from relascope.engine.pytorch.model import load_model
    from relascope.engine.server.unbuilt import forward_kernels
    from relascope.passes.cuts.cut import Joint, cut

    backend, model = load_engine(ir), load_model(source, quiet)
    program, split = backend.import_model(model, quiet), None
    for step in default_pipeline(ir, source.training):
        entry = info(ir, step)
        if not entry.looking:
            program = entry.load()(program, **entry.arguments(step))
    if source.training:
        graph, exprs = backend.to_graph(program)
        known = Joint(graph, forward_kernels(backend, program, graph, exprs))
        split = backend.split(program, graph, exprs, cut(known).ids)
    best = next(t.name for t in backend.describe().targets if OPENBLAS in t.name)
    target = args.target or best.split(" -rec")[0]
    make = functools.partial(built, ir, backend, model, program, split, target)
    tricks = {"": Trick(), "noise": Trick()}
    tricks |= {n: TRICKS[n] for n in names if ir in TRICKS[n].engines}
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    threads = sorted({1, os.cpu_count() or 1})
    for index in range(args.rounds):
        for name in list(tricks)[:: -1 if index % 2 else 1]:
            found = make(tricks[name])
            if found is None:
                del tricks[name]
                continue
            for count in threads:
                set_threads(count)
                work, clock = timed(found.run, args.seconds)
                figures[name][f"{count} work"].append(work)
                figures[name][f"{count} clock"].append(clock)
            figures[name]["build"].append(found.seconds)
            figures[name]["error"].append(found.error)
    rows, on = [], figures[""]
    for name in filter(None, tricks):
        off = figures[name]
        about = (source.batch, source.tokens) if source.tokens else ""
        row: Row = {"engine": ir, "sample": f"{source.model} {about}".strip()}
        row |= {"phase": "forward+backward" if source.training else "forward", "trick": name}
        for count in threads:
            row[f"{count}: ms"] = 1e3 * statistics.median(on[f"{count} clock"])
            for kind in ("work", "clock"):
                row[f"{count}: {kind}"] = over(off, on, f"{count} {kind}")
        row["build"] = over(off, on, "build")
        rows.append({**row, "error on": max(on["error"]), "error off": max(off["error"])})
    return rows


def over(off: dict[str, list[float]], on: dict[str, list[float]], what: str) -> float:
    """How much longer something takes without a trick."""
    return statistics.median(off[what]) / statistics.median(on[what])


def built(
    ir: str, backend: Any, model: Any, program: Any, split: Any, target: str, trick: Trick
) -> Any:
    """A program built without a trick: `run`, `error`, `seconds`; None where it uses none."""
    from relascope.core.memo import Memo
    from relascope.engine.measure.compare import Built, compare

    if trick.blas:
        if OPENBLAS not in target:
            return None
        target = target.replace(OPENBLAS, BLAS[ir])
    runtime = import_module(f"relascope.engine.{ir}.building.runtime")
    runtime._builder._built = Memo(16)  # nothing that was built before
    patch: Any = nullcontext()
    TOUCHED.clear()
    if trick.where:
        owner, name = trick.place(ir)
        patch = replaced(owner, name, trick.off(getattr(owner, name)))
    began = time.process_time()
    with patch:
        step = backend.build(program, split, target)
    seconds = time.process_time() - began
    made = Built(model, program, step, None, seconds)
    if (trick.where and not TOUCHED) or not trick.running(made):
        return None

    def run() -> object:
        masks = made.masks(None)
        outputs, captures = made.forward(masks)
        return made.backward(masks, captures) if split is not None else outputs

    error = max(c.max_abs for c in compare(made, quiet))
    return SimpleNamespace(run=run, error=error, seconds=seconds)


def timed(run: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Seconds of the processor and by the clock: of many runs the first quartile, for others on
    the machine make runs longer, and none shorter."""
    run()
    works, clocks, end = [], [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(works) < 3:
        work, began = time.process_time(), time.perf_counter()
        run()
        works.append(time.process_time() - work)
        clocks.append(time.perf_counter() - began)
    low, *_ = statistics.quantiles(works, n=4, method="inclusive")
    return low, statistics.quantiles(clocks, n=4, method="inclusive")[0]


def quiet(fraction: float, text: str) -> None:
    """Nobody watches."""


if __name__ == "__main__":
    raise SystemExit(main())
