"""How every sample's kernels are launched on a GPU that need not be here, in both engines.

    python bench/compiles/launches.py [--target TEXT …] [--engine NAME] [SAMPLE …]

Prints a line for each build: how many functions run on the GPU, how many threads their blocks have,
what they share, registers, and by how many of each rule they were scheduled; below it what stands
out, in the sentences that `compile` prints. Exit status 1 where a build fails, or a kernel would
not run.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.cut import joint_of
from relascope.engine.protocol.artefact import Artefact
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import cut
from relascope.samples import SAMPLES

TARGETS = ("cuda -arch=sm_80", "cuda -arch=sm_90")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("samples", nargs="*", default=list(SAMPLES), metavar="SAMPLE")
    parser.add_argument("--target", action="append", metavar="TEXT", help="repeat")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    args = parser.parse_args()
    bad = 0
    for ir in args.engine or ENGINES:
        with EngineClient(ir) as client:
            for name in args.samples:
                for training in (False, True):
                    for target in args.target or TARGETS:
                        bad += _build(client, ir, ModelSource(name, training=training), target)
    return bool(bad)


def _build(client: EngineClient, ir: str, source: ModelSource, target: str) -> int:
    mode = "gradient" if source.training else "forward"
    head = f"{ir} {target}, {source.model}, {mode}"
    pipeline = default_pipeline(ir, source.training)
    request = BuildRequest(source, pipeline, target)
    try:
        if source.training:
            request = request.split_at(cut(joint_of(client.call, source, pipeline)).ids)
        found: Artefact = client.call("compile", request)
    except EngineError as error:
        print(f"{head}: {error.message}", flush=True)
        return 1
    runs = [launch for kernel in found.kernels for launch in kernel.launches]
    threads, shared = [x.threads for x in runs], max((x.shared_bytes for x in runs), default=0)
    registers = max((x.registers or 0 for x in runs), default=0)
    rules = Counter(x.schedule.removeprefix("DLight's ") or "TVM's own" for x in runs)
    print(
        f"{head}: {len(runs)} functions, {min(threads, default=0)} to {max(threads, default=0)} "
        f"threads a block, {shared} B shared at most, {registers} registers at most; "
        + ", ".join(f"{count} {rule}" for rule, count in rules.most_common()),
        flush=True,
    )
    notes = found.notes[not found.target.runs_here :]
    for note in notes:
        print(f"    {note}", flush=True)
    return int(any("will not run" in note for note in notes))


if __name__ == "__main__":
    sys.exit(main())
