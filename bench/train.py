"""Train a small BERT classifier with TVM and with PyTorch alone, and compare the loss curves.

    python bench/train.py --engine relax --steps 50
    python bench/train.py --engine relax --verify-cost

Weights, data, dropout and optimiser are the same by seed. Prints the largest difference between the
two curves and the median time of a step of each; or what `verify` adds to the first step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from relascope.engine.dispatch import add_tvm_dispatch
from relascope.engine.registry import ENGINES
from relascope.samples import build

BATCH, TOKENS = 8, 16
CONFIG = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 32,
    "num_labels": 2,
    "attn_implementation": "eager",
}


def losses(
    engine: str | None, steps: int, seconds: list[float] | None = None, layers: int = 2
) -> list[float]:
    """The loss of each step of AdamW, dropout on.

    The made data can be learned: a sequence belongs to the second class if token 1 is in it.

    Args:
        engine: "relay", "relax", or None for PyTorch alone.
        seconds: is given what each step took.
        layers: of BERT.
    """
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**CONFIG, num_hidden_layers=layers)).train()
    data = torch.Generator().manual_seed(1)
    if engine is not None:
        ids = torch.ones(BATCH, TOKENS, dtype=torch.int64)
        add_tvm_dispatch(model, (ids, torch.ones_like(ids)), engine=engine)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    torch.manual_seed(2)
    found = []
    for _ in range(steps):
        ids = torch.randint(2, CONFIG["vocab_size"], (BATCH, TOKENS), generator=data)
        labels = torch.arange(BATCH) % 2
        ids[labels == 1, 3] = 1
        mask = torch.ones_like(ids)
        mask[::3, -4:] = 0
        began = time.perf_counter()
        logits = model(ids, mask).logits
        loss = torch.nn.functional.cross_entropy(logits, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if seconds is not None:
            seconds.append(time.perf_counter() - began)
        found.append(float(loss.detach()))
    if engine is not None and model.forward.calls != {"tvm": steps, "own": 0}:
        raise RuntimeError(f"not every step went through TVM: {model.forward.calls}")
    return found


def print_verify_cost(engine: str, turns: int = 6) -> None:
    """Print what samples take from `add_tvm_dispatch` to their first gradients, in turns.

    Args:
        turns: of which the fastest count, for what else the machine does only adds to a build.
    """
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
