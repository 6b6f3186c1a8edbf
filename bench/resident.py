"""Resident memory of a process after training steps of dispatched layers, beside eager's.

The layers are BERT layers in a row, at a batch of 8 with 128 tokens. Eager and each engine run in
their own processes, and the allocator returns free pages before each figure. Returns 1 if an
engine's process holds more than `MOST` of eager's and of what loading its TVM takes."""

import ctypes
import gc
import json
import os
import subprocess
import sys

import torch
from common import Row, finish, options

from relascope.engine.dispatch import add_tvm_dispatch
from relascope.engine.faults.show import resident
from relascope.engine.in_process import load_engine
from relascope.samples import build

MOST = 1.3


def _resident() -> float:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return round(resident(os.getpid()) / 2**20, 1)


def measure(engine: str, layers: int) -> Row:
    """The figures of this process, in MiB."""
    torch.set_num_threads(1)
    made = [build("bert_layer", batch=8, tokens=128, training=True) for _ in range(layers)]
    row: Row = {"engine": engine, "layers": layers, "model": _resident()}
    if engine != "eager":
        load_engine(engine).describe()
        row["TVM"] = round(_resident() - row["model"], 1)
        for module, inputs in made:
            add_tvm_dispatch(module, inputs, engine=engine)
    for _ in range(3):
        hidden, *others = made[0][1]
        for module, _ in made:
            hidden = module(hidden, *others)
        hidden.square().mean().backward()
        del hidden
        row["after"] = _resident()
    return row


def main() -> int:
    """Print the table, and what misses its bar."""
    parser = options(__doc__, repeats=0)
    parser.add_argument("--layers", type=int, default=20)
    args = parser.parse_args()
    rows = []
    for engine in ("eager", *(args.engine or ("relax", "relay"))):
        words = [sys.executable, __file__, "one", engine, str(args.layers)]
        found = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
        rows.append(json.loads(found.splitlines()[-1]))

    def missed(row: Row) -> list[str]:
        most = MOST * rows[0]["after"] + row.get("TVM", 0)
        return ["holds more than its bar"] if row["after"] > most else []

    return finish(args, rows, missed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
        sys.exit()
    sys.exit(main())
