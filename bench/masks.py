"""Print how long dropout masks take to draw, by the kernel and by PyTorch, and whether they agree.

Run `python bench/masks.py` from the project's root; `--repeats N`, `--engine` for the TVM that
builds the kernel. Both draw from one generator, in turns, on one thread. Returns 1 where a mask
differs from PyTorch's; where PyTorch draws other numbers on this processor the kernel is not used,
and that is said.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable

import torch

from relascope.engine.cpu_kernels import mersenne_twister
from relascope.viz.rows.formats import text_table

SHAPES = ((1, 14, 768), (8, 128, 768), (8, 12, 128, 128))
KEEP = 0.9


def main() -> int:
    """Measure, print, and return 0 where every mask is PyTorch's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30, metavar="N")
    parser.add_argument("--engine", choices=("relax", "relay"), default="relax")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kernel = importlib.import_module(f"engine.{args.engine}.runtime").mask_kernel()
    if not mersenne_twister.agrees(kernel):
        print("PyTorch draws other numbers here, so it draws all masks.")
        return 0
    rows, wrong = [], 0
    for shape in SHAPES:
        drawn = torch.empty(shape, dtype=torch.float32)
        ways: dict[str, Callable[[], torch.Tensor]] = {
            "PyTorch": lambda mask=drawn: mask.bernoulli_(KEEP).div_(KEEP),
            "kernel": lambda mask=drawn: mersenne_twister.draw(kernel, mask, KEEP),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for seed in range(args.repeats):
            masks = []
            for name, way in ways.items():
                torch.manual_seed(seed)
                began = time.perf_counter()
                way()
                taken[name].append(time.perf_counter() - began)
                masks.append(drawn.clone())
            wrong += not torch.equal(*masks)
        median = {n: 1e9 * statistics.median(t) / drawn.numel() for n, t in taken.items()}
        ratio = statistics.median(
            k / p for k, p in zip(taken["kernel"], taken["PyTorch"], strict=True)
        )
        rows.append(
            {
                "shape": str(shape),
                **{f"{n}_ns": m for n, m in median.items()},
                "ratio": ratio,
                "differ": wrong,
            }
        )
    print(text_table(rows, list(rows[0])))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
