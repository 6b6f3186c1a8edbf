"""Train a small BERT classifier with TVM and with PyTorch alone, and compare the loss curves.

Weights, data, dropout and optimiser are the same by seed. Prints the largest difference between the
two curves and the median time of a step of each; or what `verify` adds to the first step.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/both/against_pytorch"))

from classifier import losses
from relascope.engine.dispatch import add_tvm_dispatch
from relascope.engine.registry import ENGINES
from relascope.samples import build


def print_verify_cost(engine: str, turns: int = 6) -> None:
    """Print what samples take from `add_tvm_dispatch` to their first gradients, in turns. The
    fastest of `turns` count, for what else the machine does only adds to a build."""
    for name in ("mlp", "bert_layer"):
        took: dict[bool, list[float]] = {True: [], False: []}
        for verify in [*took] * turns:
            module, inputs = build(name, training=True)
            began = time.perf_counter()
            add_tvm_dispatch(module, inputs, engine=engine, verify=verify)
            results = module(*inputs)
            sum(t.sum() for t in torch.utils._pytree.tree_leaves(results)).backward()
            took[verify].append(time.perf_counter() - began)
        with_it, without = (min(took[v]) for v in took)
        added = 1e3 * (with_it - without)
        print(f"{engine}, {name}: {without:.2f} s without verify, with it {added:+.0f} ms")


def main() -> None:
    """Print both curves' difference and the times of a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--steps", type=int, default=50)
    about = "time what add_tvm_dispatch(verify=True) adds instead"
    parser.add_argument("--verify-cost", action="store_true", help=about)
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if options.verify_cost:
        print_verify_cost(options.engine)
        return
    times: dict[str, list[float]] = {"pytorch": [], options.engine: []}
    theirs = losses(None, options.steps, times["pytorch"])
    ours = losses(options.engine, options.steps, times[options.engine])
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    print(f"{options.steps} steps: loss {theirs[0]:.4f} to {theirs[-1]:.4f} with PyTorch")
    print(f"largest difference of the loss curves, {options.engine} to PyTorch: {worst:.2e}")
    for name, seconds in times.items():
        later = seconds[1:] or seconds
        print(
            f"{name}: {1e3 * statistics.median(later):.2f} ms a step, the first {seconds[0]:.1f} s"
        )


if __name__ == "__main__":
    main()
