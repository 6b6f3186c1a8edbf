"""Run models drawn at random on the GPU, as training code does: by `add_tvm_dispatch`.

    python bench/oracles/drawn_on_gpu.py --engine relax --seed S --seconds 300

Each model (see `drawn.py`) is in eval mode and has a process of its own, of which several run at a
time. Its first calls compare outputs, gradients and the generator's state with the module's own on
that GPU. Prints a line for each that is not right, and how many were right. Returns 1 where any is
wrong or ended its process.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))
from zoo import ROOT, Row, _Positional, failed, flat_tensors, short

import drawn
from relascope.core.errors import EngineError
from relascope.engine.dispatch import add_tvm_dispatch

_SECONDS = 120


def look(ir: str, name: str) -> Row:
    """A model's verdict, in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        whole, given = drawn.make(name)
        module = _Positional(whole, tuple(given)).eval().cuda()
        inputs = tuple(v.cuda() for v in given.values())
        _step(module, inputs)
    except Exception as error:
        return {"verdict": "unwritten", "message": f"{type(error).__name__}: {short(str(error))}"}
    try:
        add_tvm_dispatch(module, inputs, engine=ir)
        with torch.no_grad():
            module(*inputs)
        _step(module, inputs)
    except EngineError as error:
        return failed(error) | ({"verdict": "wrong"} if error.kind == "engine" else {})
    except Exception as error:
        return failed(error)
    return {"verdict": "right", "message": ""}


def _step(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    made = [t for t in flat_tensors(module(*inputs)) if t.requires_grad]
    ones = [torch.ones_like(t) for t in made]
    torch.autograd.grad(made, list(module.parameters()), ones, allow_unused=True)
    torch.cuda.synchronize()


def _apart(ir: str, name: str) -> Row:
    words = [sys.executable, __file__, "--engine", ir, "--model", name]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = os.environ | {"PYTHONPATH": paths}
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, env=own)
    except subprocess.TimeoutExpired:
        return {"verdict": "slow", "message": f"took longer than {_SECONDS} s"}
    *_, last = ["", *ended.stdout.splitlines()]
    if last.startswith("{"):
        return dict(json.loads(last))
    return {"verdict": "died", "message": short(ended.stderr[-300:]), "status": ended.returncode}


def main() -> int:
    """Look at models until the time is over; 1 where one is wrong or ended its process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("relax", "relay"), required=True)
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--model", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.model:
        print(json.dumps(look(args.engine, args.model)))
        return 0
    names = iter([name for name, _ in drawn.draw(args.seed)])  # a list's, which several may ask
    until, found = time.monotonic() + args.seconds, Counter[str]()

    def work(_: int) -> None:
        while time.monotonic() < until:
            name = next(names)
            row = _apart(args.engine, name)
            found[row["verdict"]] += 1
            if row["verdict"] not in ("right", "unwritten"):
                print(name, row["verdict"], row["message"], row.get("where", ""), flush=True)

    with ThreadPoolExecutor(args.processes) as pool:
        list(pool.map(work, range(args.processes)))
    print(args.engine, dict(found))
    return int(found["wrong"] + found["crash"] + found["died"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
