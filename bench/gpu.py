"""Everything that is claimed of a GPU, measured on the one that is here, in ten minutes.

    python bench/gpu.py                    every part, in order
    python bench/gpu.py --part timing      one alone; `--engine relax` for one engine
    python bench/gpu.py --dry-run          without a GPU: as far as building and the CPU go

It finds the GPU, says which of torch, Relay's TVM and Relax's TVM can use it, and why not. Each
part then runs in a process of its own, which is killed at its limit with all that it started, and
each result is written at once to `bench/results/<gpu>.json`, and as tables to the `.md` beside it.
It needs no network.

A machine that has PyTorch for GPUs, transformers and networkx, but not our other dependencies, gets
them from a folder of archives:

    python bench/gpu.py --pack FOLDER --python 3.12   here, with a network: for that Python
    python bench/gpu.py --unpack FOLDER               there, without one, as archives arrive
    python bench/gpu.py                               there; it finds what was unpacked

A dry run goes to `out/gpu-dry-run.json` and says so in every line: what ran on the CPU has no
times, and nothing of it is a GPU's figure. Returns 1 where a part does not come to its end or a bar
is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "bench")]

from on_gpu import pack  # noqa: E402, which imports nothing that may be missing

PLACE = "RELASCOPE_GPU_PACK"
"""Environment variable: where `--unpack` lays things down, and where they are looked for."""


def place() -> Path:
    """Where what was unpacked is."""
    named = os.environ.get(PLACE, "")
    return Path(named) if named else Path.home() / ".cache/relascope/gpu-pack"


def main() -> int:
    """Pack, unpack, or measure; 0 where all went as it should."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", action="append", metavar="NAME", help="may be repeated")
    parser.add_argument("--engine", choices=("relax", "relay"), action="append")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE", help="the record (JSON)")
    parser.add_argument("--pack", type=Path, metavar="FOLDER")
    parser.add_argument("--python", action="append", metavar="3.12", help="to pack for; repeat")
    parser.add_argument("--unpack", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    try:
        if args.pack:
            return pack.pack(args.pack, args.python or [pack.THIS])
        if args.unpack:
            return pack.unpack(args.unpack, place())
        pack.use(place())
    except pack.DoesNotFit as error:
        print(error, file=sys.stderr)
        return 1
    from on_gpu import running

    return running.run(args.part, args.engine, args.dry_run, args.output)


if __name__ == "__main__":
    raise SystemExit(main())
