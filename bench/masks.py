"""Print how long dropout masks take to draw, by the kernel and by PyTorch, and whether they agree.

Run `python bench/masks.py` from the project's root; `--engine` says whose TVM builds the kernel.
Both draw from one generator, in turns, on one thread. Returns 1 where a mask differs from
PyTorch's; where PyTorch draws other numbers on this processor the kernel is not used, and that is
said.
"""

from __future__ import annotations

import importlib
import statistics
import time

import common
import torch

from relascope.engine.cpu_kernels import mersenne_twister

SHAPES = ((1, 14, 768), (8, 128, 768), (8, 12, 128, 128))
KEEP = 0.9


def main() -> int:
    """Measure, print, and return 0 where every mask is PyTorch's."""
    parser = common.options(__doc__, samples=False)
    parser.add_argument("--engine", choices=common.ENGINES, default="relax")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runtime = importlib.import_module(f"relascope.engine.{args.engine}.building.runtime")
    kernel = runtime.mask_kernel()
    if not mersenne_twister.agrees(kernel):
        print("PyTorch draws other numbers here, so it draws all masks.")
        return 0
    rows, wrong = [], 0
    for shape in SHAPES:
        drawn = torch.empty(shape, dtype=torch.float32)
        taken: dict[str, list[float]] = {"PyTorch": [], "kernel": []}
        for seed in range(args.repeats):
            masks = []
            for name, times in taken.items():
                torch.manual_seed(seed)
                began = time.perf_counter()
                if name == "kernel":
                    mersenne_twister.draw(kernel, drawn, KEEP)
                else:
                    drawn.bernoulli_(KEEP).div_(KEEP)
                times.append(time.perf_counter() - began)
                masks.append(drawn.clone())
            wrong += not torch.equal(*masks)
        median = {n: 1e9 * statistics.median(t) / drawn.numel() for n, t in taken.items()}
        ratio = statistics.median(k / p for p, k in zip(*taken.values(), strict=True))
        figures = {f"{n}_ns": m for n, m in median.items()}
        rows.append({"shape": str(shape), **figures, "ratio": ratio, "differ": wrong})
    common.table(rows)
    common.write(args.output, rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
