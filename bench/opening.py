"""How long it takes to open a model's file, how that grows with the model, and what checks cost.

Run `python bench/opening.py` from the project's root; `--engine` and `--only TEXT` for a part. Each
model is saved by `torch.jit.save` and opened in an engine that is warm: read, checked, traced,
imported and its graph sent (`open_s`; `processor_s` of that is the engine's own), then laid out as
the page has it at first (`layout_s`). Of `mlp 1000`, `growth` is its processor time over 4 times
that of `mlp 250`.

Of `bert_layer`, both as `.pt` and as `.pt2`, the file is read and traced with what guards opening
and without (checks of code, programs and limits), in turns; `guarded` is the ratio of the medians
of the processor's time. `--repeats` are the rounds of that.

Returns 1 where `mlp 1000` takes more than 15 s, growth is above 1.3, or guards cost above 5 %.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import common
import torch
from common import ENGINES, Row
from fuzz import processor

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.protocol.source import source_from_file
from relascope.engine.pytorch import exported_program, model
from relascope.samples import build
from relascope.viz.drawing.layout import layout
from relascope.viz.drawing.modules import fold_constants, module_groups

SECONDS, GROWTH, GUARDED = 15.0, 1.3, 1.05


def mlp(layers: int) -> torch.nn.Module:
    """Layers of 16, each behind a ReLU."""
    parts = (torch.nn.Linear(16, 16) if i % 2 == 0 else torch.nn.ReLU() for i in range(2 * layers))
    return torch.nn.Sequential(*parts)


class Plain(torch.nn.Module):
    """A model of transformers from one tensor to one."""

    def __init__(self, whole: torch.nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Its last hidden state."""
        return self.whole(given, return_dict=False)[0]


def of_transformers(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    """A model with the usual configuration of its kind, and random weights."""

    def make() -> torch.nn.Module:
        import transformers

        config = getattr(transformers, f"{name}Config")(**options)
        if hasattr(config, "use_cache"):
            config.use_cache = False
        return Plain(getattr(transformers, f"{name}Model")(config))

    return make


IDS, IMAGE = torch.arange(14).reshape(1, 14), torch.ones(1, 3, 224, 224)
MODELS: dict[str, tuple[Callable[[], torch.nn.Module], torch.Tensor]] = {
    "mlp 250": (lambda: mlp(250), torch.ones(2, 16)),
    "mlp 1000": (lambda: mlp(1000), torch.ones(2, 16)),
    "GPT-2, 12 layers": (of_transformers("GPT2"), IDS),
    "MobileViT": (of_transformers("MobileViT"), torch.ones(1, 3, 256, 256)),
    "Swin": (of_transformers("Swin"), IMAGE),
}


def saved(folder: Path, name: str) -> Path:
    """A model's file."""
    file = folder / f"{name.replace(' ', '_')}.pt"
    if not file.exists():
        make, given = MODELS[name]
        torch.manual_seed(0)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.jit.trace(make().eval(), given, check_trace=False).save(str(file))
    return file


def opened(ir: str, names: list[str], folder: Path) -> list[Row]:
    """A row for each model in one engine."""
    rows: list[Row] = []
    with EngineClient(ir) as client:
        # All that loading needs is imported then.
        client.call("load", source_from_file(saved(folder, "mlp 250")))
        for name in names:
            # Another seed, so that nothing is known of the file.
            source = source_from_file(saved(folder, name), seed=1)
            pid, began = client.pid, time.perf_counter()
            used = processor(pid) if pid else 0.0
            row: Row = {"engine": ir, "sample": name}
            try:
                graph = client.call("load", source).graph
            except EngineError as error:
                rows.append({**row, "missed": error.message})
                continue
            row["open_s"] = round(time.perf_counter() - began, 2)
            row["processor_s"] = round(processor(pid) - used, 2) if pid else None
            began = time.perf_counter()
            drawn = fold_constants(graph, 10)
            tree = module_groups(drawn)
            layout(drawn, tree.open_at_first())
            row["layout_s"] = round(time.perf_counter() - began, 2)
            rows.append({**row, "nodes": len(graph)})
    known = {r["sample"]: r for r in rows if "missed" not in r}
    if {"mlp 250", "mlp 1000"} <= set(known):
        small, large = (known[n]["processor_s"] for n in ("mlp 250", "mlp 1000"))
        known["mlp 1000"]["growth"] = round(large / (4 * small), 2)
    return rows


def guards(folder: Path, repeats: int) -> list[Row]:
    """What it costs to guard the opening of `bert_layer`."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    module, inputs = build("bert_layer", None, None, False, 0, "float32")
    torch.jit.trace(module, inputs, check_trace=False).save(str(folder / "layer.pt"))
    torch.export.save(torch.export.export(module, inputs), folder / "layer.pt2")
    rows: list[Row] = []
    for file in (folder / "layer.pt", folder / "layer.pt2"):
        times: dict[bool, list[float]] = {True: [], False: []}
        for round_ in range(2 * (repeats + 1)):
            guarded = round_ % 2 == 0
            source = source_from_file(file, "" if file.suffix == ".pt2" else _types(inputs))
            with ExitStack() as without:
                if not guarded:
                    nothing = lambda *_, **__: None  # noqa: E731
                    without.enter_context(patch.object(model, "check_code", nothing))
                    without.enter_context(patch.object(exported_program, "check_program", nothing))
                    free = lambda *_, **__: nullcontext()  # noqa: E731
                    without.enter_context(patch.object(model, "opening", free))
                began = time.process_time()
                model.load_model(source, lambda *_: None)
                times[guarded].append(time.process_time() - began)
        with_, out = (statistics.median(times[g][1:]) for g in (True, False))
        row = {"sample": f"bert_layer{file.suffix}", "processor_s": round(with_, 4)}
        rows.append({**row, "guarded": round(with_ / out, 4)})
    return rows


def _types(inputs: tuple[torch.Tensor, ...]) -> str:
    return "\n".join(
        f"{'x'.join(map(str, t.shape))}:{str(t.dtype).removeprefix('torch.')}" for t in inputs
    )


def main() -> int:
    """Open all that is asked for, print, and return 0 where all bars are met."""
    parser = common.options(__doc__, samples=False, repeats=15)
    parser.add_argument("--engine", choices=ENGINES, action="append", help="may be repeated")
    parser.add_argument("--only", default="", metavar="TEXT", help="in a model's name, or guards")
    args = parser.parse_args()
    names = [n for n in MODELS if args.only in n]
    with tempfile.TemporaryDirectory(prefix="relascope-opening-") as folder:
        rows: list[Row] = []
        for ir in args.engine or ENGINES:
            rows += opened(ir, names, Path(folder)) if names else []
        if args.only in "guards":
            rows += guards(Path(folder), args.repeats)

    def missed(row: Row) -> list[str]:
        said = []
        if row["sample"] == "mlp 1000" and row["open_s"] > SECONDS:
            said.append(f"opened in {row['open_s']} s")
        if row.get("growth", 0.0) > GROWTH:
            said.append(f"grows {row['growth']} times linear")
        if row.get("guarded", 1.0) > GUARDED:
            said.append(f"guards take {100 * row['guarded'] - 100:.1f} %")
        return said

    return common.finish(args, rows, missed)


if __name__ == "__main__":
    raise SystemExit(main())
