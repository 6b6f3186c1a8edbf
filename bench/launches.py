"""How every sample's kernels are launched on a GPU that need not be here, in both engines.

A row says of each build how many functions run on the GPU, how many threads their blocks have, what
they share, registers, and how many each rule scheduled; below stands what stands out, as `compile`
prints it. Returns 1 where a build fails, or a kernel would not run.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import common
from common import SAMPLES, Row

from relascope.engine.client import EngineClient
from relascope.engine.protocol.artefact import Artefact
from relascope.engine.protocol.source import ModelSource

TARGETS = ("cuda -arch=sm_80", "cuda -arch=sm_90")


def main() -> int:
    """Build, print, and return 0 where all builds would run."""
    args = common.options(__doc__, repeats=0, modes=True).parse_args()
    sources = [
        ModelSource(name, training=training) for name in SAMPLES for training in common.modes(args)
    ]
    return common.finish(args, common.measured(args, sources, partial(_rows, args)))


def _rows(args: Namespace, client: EngineClient, ir: str, source: ModelSource) -> Iterator[Row]:
    asked = common.request(client, ir, source)
    for target in args.target or TARGETS:
        found: Artefact = client.call("compile", replace(asked, target=target))
        runs = [launch for kernel in found.kernels for launch in kernel.launches]
        registers = [x.registers for x in runs if x.registers is not None]
        rules = Counter(x.schedule.removeprefix("DLight's ") or "TVM's own" for x in runs)
        notes = found.notes[not found.target.runs_here :]
        yield {
            "engine": ir,
            "built for": target,
            "sample": source.model,
            "mode": "training" if source.training else "inference",
            "functions": len(runs),
            "code bytes": found.code_bytes,
            "registers": max(registers, default=None),
            "spilling": sum(bool(x.spilled_bytes) for x in runs) if registers else None,
            "shared bytes": max((x.shared_bytes for x in runs), default=None),
            "threads": max((x.threads for x in runs), default=None),
            "under 32 threads": sum(x.threads < 32 for x in runs),
            "in one block": sum(x.blocks == 1 for x in runs),
            "rules": ", ".join(f"{count} {rule}" for rule, count in rules.most_common()),
            "missed": "; ".join(n for n in notes if "will not run" in n),
        }
        for note in notes:
            common.say(args, {"said": f"{target}, {source.model}: {note}"})


if __name__ == "__main__":
    raise SystemExit(main())
