"""The parts of `bench/gpu.py`: `python -m on_gpu.parts NAME ENGINE FD [--dry-run]`, in a child.

Rows go to a file descriptor, as lines of JSON: figures, or a sentence as `said`. In a dry run the
same code runs on the CPU, and what it says of times is left out; `not_done` says what that leaves
open.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import common
from common import Row

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.cut import joint_of
from relascope.engine.protocol.artefact import Artefact
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.targets import EngineInfo, Target
from relascope.engine.protocol.times import BASELINES, TimeResult, Variant
from relascope.passes.catalogue import default_pipeline, last_built
from relascope.passes.cuts.cut import cut
from relascope.viz.rows.profile import peaks_text, profile_document

ARCHITECTURES = ("sm_80", "sm_90")
LIMIT = 1e-4
"""Of a tensor's scale: how far it may be from PyTorch's."""

_TRUTH = ("mlp", "bert_layer", "resnet")
_SMALL, _LARGE = ModelSource("bert_layer", 1, 14), ModelSource("bert_layer", 8, 128)
_TIMED = (
    _SMALL,
    replace(_SMALL, training=True),
    _LARGE,
    replace(_LARGE, training=True),
    ModelSource("resnet"),
    ModelSource("bert", 1, 14),
)
_BARS = {(_SMALL, "forward"): 0.5, (replace(_SMALL, training=True), "forward_backward"): 0.8}
"""Of eager's time."""


class Asked:
    """An engine, and the target that this run is about.

    Args:
        dry: the CPU stands in for the GPU.
    """

    def __init__(self, ir: str, client: EngineClient, dry: bool) -> None:
        self.ir, self.call, self.dry, self.client = ir, client.call, dry, client
        self.repeats = 2 if dry else 20

    @property
    def info(self) -> EngineInfo:
        found: EngineInfo = self.call("describe")
        return found

    @property
    def ways(self) -> list[Target]:
        """The targets of the first GPU that run, TVM's own default first; in a dry run, of the CPU.

        Raises:
            EngineError: kind "target"; there is none, and why.
        """
        kind = "llvm" if self.dry else "cuda"
        listed = [t for t in self.info.targets if t.name.split()[0] == kind]
        found = [t for t in listed if t.runs_here and " -gpu=" not in t.name]
        if not found:
            why = next((t.missing for t in listed), "This TVM knows no such target.")
            raise EngineError("target", why, self.ir)
        return found

    def request(self, source: ModelSource, strategy: str = "") -> BuildRequest:
        """A source by its default pipeline for the default target; in training, cut.

        Args:
            strategy: that picks the captures; by default, the default one.
        """
        pipeline = default_pipeline(self.ir, source.training, source.gradient)
        asked = BuildRequest(source, pipeline, self.ways[0].name, 0, self.repeats)
        if not source.training:
            return asked
        joint = joint_of(self.call, source, pipeline)
        return asked.split_at((cut(joint, strategy) if strategy else cut(joint)).ids)

    def crossed(self, *sources: ModelSource, options: str = "") -> Iterator[Row]:
        """What building for GPUs that are not here makes; nothing where there is one."""
        for source in sources if self.dry else ():
            pipeline = default_pipeline(self.ir, source.training, source.gradient)
            asked = self.request(source) if source.training else BuildRequest(source, pipeline, "")
            for arch in ARCHITECTURES:
                target = f"cuda -arch={arch} {options}".strip()
                made: Artefact = self.call("compile", replace(asked, target=target))
                yield {"built for": target, **_sizes(source), **kernels(made)}
                for note in made.notes[1:]:
                    yield {"said": f"{target}, {source.model}: {note}"}


def _sizes(source: ModelSource) -> Row:
    sizes = [str(s) for s in (source.batch, source.tokens) if s]
    mode = "training" if source.training else "inference"
    return {"sample": source.model, "sizes": ", ".join(sizes), "mode": mode}


def kernels(made: Artefact) -> Row:
    """What a GPU's kernels ask of it at most, and how small their grids are."""
    launches = [launch for k in made.kernels for launch in k.launches]
    registers = [x.registers for x in launches if x.registers is not None]
    return {
        "kernels": len(launches),
        "code_bytes": made.code_bytes,
        "most registers": max(registers, default=None),
        "spilling": sum(bool(x.spilled_bytes) for x in launches) if registers else None,
        "most shared_bytes": max((x.shared_bytes for x in launches), default=None),
        "most threads": max((x.threads for x in launches), default=None),
        "under 32 threads": sum(x.threads < 32 for x in launches),
        "in one block": sum(x.blocks == 1 for x in launches),
    }


def boot_torch() -> Iterator[Row]:
    """PyTorch, and the GPU by its word."""
    import torch

    said = f"PyTorch {torch.__version__}"
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    gpu, why, facts = "", "", {}
    if torch.cuda.is_available():
        about = torch.cuda.get_device_properties(0)
        gpu = about.name
        facts = {
            "memory_bytes": about.total_memory,
            "capability": f"{about.major}.{about.minor}",
            "multiprocessors": about.multi_processor_count,
            "l2_bytes": getattr(about, "L2_cache_size", None),
            "devices": torch.cuda.device_count(),
            "cudnn": torch.backends.cudnn.version(),
        }
    else:
        try:
            torch.cuda.init()
        except Exception as error:  # whatever keeps it from the GPU is the answer
            why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    can = "can use the GPU" if gpu else f"cannot use a GPU: {why}"
    yield {"said": f"{said}, {built}, {can}.", "gpu": gpu}
    if gpu:
        yield facts
    versions = common.machine()
    yield {k: versions[k] for k in ("processor", "cores", "torch", "python")}
    from relascope.engine.building import cuda_compiler

    compiler = cuda_compiler.compiler()
    yield {"said": f"CUDA's source is compiled by {compiler or 'nothing: there is no compiler'}."}


def boot_engine(ir: str, dry: bool) -> Iterator[Row]:
    """An engine with the real libraries; unsandboxed where the sandbox keeps it from the GPU.

    A GPU's targets are said to run here only after a small function was built for each, run there,
    and gave the right numbers.
    """
    with EngineClient(ir) as client:
        info: EngineInfo = client.call("describe")
    yield {"said": f"{ir}: TVM {info.version}. Its sandbox: {'; '.join(info.sandbox) or 'none'}."}
    gpus = [t for t in info.targets if t.name.split()[0] == "cuda"]
    if not any(t.runs_here for t in gpus) and info.sandbox and not dry:
        os.environ["RELASCOPE_SANDBOX"] = "off"
        with EngineClient(ir) as client:
            info = client.call("describe")
        gpus = [t for t in info.targets if t.name.split()[0] == "cuda"]
        if any(t.runs_here for t in gpus):
            yield {
                "said": f"A FAULT: {ir}'s sandbox keeps it from the GPU. Unsandboxed from here.",
                "environment": {"RELASCOPE_SANDBOX": "off"},
            }
    for target in gpus:
        can = "runs" if target.runs_here else f"cannot be used: {target.missing}"
        yield {"said": f"{ir}: {target.name} ({target.device}; {target.kernels or '-'}) {can}"}
    yield from (_relay_libraries() if ir == "relay" else _relax_libraries())
    if not dry and not any(t.runs_here for t in gpus):
        raise EngineError("target", f"{ir}'s TVM cannot use the GPU.", ir)


def _relay_libraries() -> Iterator[Row]:
    from relascope.engine.relay.tvm import boot

    boot.boot()
    for one in boot.describe_cuda():
        yield {"library": one.name, "is": "real" if one.real else "a stub", "note": one.note}


def _relax_libraries() -> Iterator[Row]:
    import torch  # noqa: F401, as engines load it before TVM

    from relascope.engine.relax.building.cuda_runtime import missing

    said = missing()
    yield {
        "library": "libtvm_runtime_cuda.so",
        "is": "not loaded" if said else "real",
        "note": said,
    }


def kernel(asked: Asked) -> Iterator[Row]:
    """`y = 2 x + 1` by every way, which `describe` ran; the smallest sample against PyTorch."""
    for target in asked.ways:
        yield {"target": target.name, "y = 2 x + 1": "right"}
    for target in asked.ways[:1] if asked.dry else asked.ways:
        yield from _checked(asked, ModelSource("mlp"), "forward", target.name)
    yield from asked.crossed(ModelSource("mlp"))


def truth(asked: Asked) -> Iterator[Row]:
    """Forward, gradient in one function, and split at the default cut: every tensor."""
    for name in _TRUTH:
        yield from _checked(asked, ModelSource(name), "forward")
        source = ModelSource(name, training=True)
        yield from _checked(asked, source, "gradient")
        yield from _checked(asked, source, "split")
    for name in _TRUTH:
        yield from asked.crossed(ModelSource(name), ModelSource(name, training=True))


def _checked(asked: Asked, source: ModelSource, what: str, target: str = "") -> Iterator[Row]:
    began = time.perf_counter()
    request = asked.request(source)
    request = replace(request, target=target or request.target)
    if what == "gradient":
        request = replace(request, captures=(), split=False)
    found = asked.call("check", request)
    worst = max(found, key=lambda c: c.max_rel if c.max_rel == c.max_rel else float("inf"))
    yield {
        "target": request.target,
        "sample": source.model,
        "what": what,
        "tensors": len(found),
        "error": worst.max_rel,
        "error_most": LIMIT,
        "of": worst.name,
        "seconds": None if asked.dry else time.perf_counter() - began,
    }


def timing(asked: Asked) -> Iterator[Row]:
    """Beside eager; in inference, once, beside torch.compile and its CUDA graphs."""
    failed: list[EngineError] = []
    for source in _TIMED[:2] if asked.dry else _TIMED:
        rivals = asked.ir == "relax" and not source.training
        try:
            yield from _timed(asked, source, BASELINES[:2] if rivals else ())
        except EngineError as error:  # of one source; the others are still to be timed
            yield {"said": f"FAILED: {_sizes(source)}: {error.message} ({error.where})"}
            failed.append(error)
    yield from asked.crossed(_LARGE)
    if failed:
        raise failed[0]


def _timed(
    asked: Asked,
    source: ModelSource,
    baselines: tuple[str, ...] = (),
    variants: tuple[Variant, ...] = (),
    strategy: str = "",
) -> Iterator[Row]:
    request = asked.request(source, strategy)
    result: TimeResult = asked.call("time", request, baselines, variants)
    yield from ({"said": f"{source.model}: {note}"} for note in result.notes if not asked.dry)
    for row in result.rows:
        about = {**_sizes(source), "phase": row.phase, "what": row.what}
        about |= {"cut": strategy} if strategy else {}
        if asked.dry:
            yield {**about, "rounds": asked.repeats, "error": row.max_abs_error}
            continue
        ours = row.ratio_to_eager is not None and row.ours_over is None
        most = (
            _BARS.get((source, row.phase)) if ours and row.what.endswith(request.target) else None
        )
        rival = source == _LARGE and row.what == BASELINES[0] and asked.ir == "relax"
        yield {
            **about,
            "ms": row.median_ms,
            "of_eager": row.ratio_to_eager,
            "of_eager_most": most,
            "ours_over": row.ours_over,
            "ours_over_most": 1.0 if rival else None,
            "error": row.max_abs_error,
            "peak_bytes": row.peak_bytes,
            "capture_bytes": row.capture_bytes,
            "build_s": row.build_seconds,
        }


def _beside(asked: Asked, fits: Callable[[str], bool]) -> Iterator[Row]:
    """The default beside the other ways that fit, both sizes of a layer."""
    chosen = [t.name for t in asked.ways[1:] if fits(t.name)]
    if not chosen:
        yield {"said": f"{asked.ir} has no such way here, only {asked.ways[0].name}."}
        return
    for source in (_SMALL,) if asked.dry else (_SMALL, _LARGE):
        request = asked.request(source)
        variants = tuple(Variant(name, replace(request, target=name)) for name in chosen)
        yield from _timed(asked, source, (), variants)


def graphs(asked: Asked) -> Iterator[Row]:
    """Kernels that are recorded once, and launched together from then on."""
    if not asked.dry:
        yield from _beside(asked, lambda name: "-libs=" not in name)
        return
    from relascope.engine.building.options import BuildOptions
    from relascope.engine.relax.building import runtime
    from relascope.engine.relax.session import RelaxSession

    program = RelaxSession().program_after(_SMALL, default_pipeline("relax", False))
    for arch in ARCHITECTURES:
        target = f"cuda -arch={arch} -graphs=cuda"
        text = str(runtime.executable(program, BuildOptions(target)).as_text())
        count = text.count("vm.builtin.cuda_graph.run_or_capture in")
        yield {"built for": target, "sample": _SMALL.model, "parts recorded": count}
        if not count:
            raise EngineError("engine", "No part of the program is recorded.", target)


def cublas(asked: Asked) -> Iterator[Row]:
    """Products by NVIDIA's library, and by TVM's own kernels."""
    yield from _beside(asked, lambda name: "-graphs=" not in name and "-schedules=" not in name)
    option = "-libs=blas" if asked.ir == "relax" else "-libs=cublas"
    yield from asked.crossed(_SMALL, options=option)


def profile(asked: Asked) -> Iterator[Row]:
    """Kernel by kernel, with the peaks that were measured on the same device."""
    for source in (_SMALL,) if asked.dry else (_SMALL, _LARGE, ModelSource("resnet")):
        request = asked.request(source)
        found = asked.call("profile", replace(request, repeats=min(10, asked.repeats)))
        built = last_built(asked.ir, request.pipeline)
        document = profile_document(
            found, asked.call("graph_after", source, request.pipeline, built)
        )
        if asked.dry:
            mapped = sum(bool(k["nodes"]) for k in document["kernels"])
            counted = sum(k["roof"] is not None for k in document["kernels"])
            about = {**_sizes(source), "kernels": len(document["kernels"])}
            yield {**about, "mapped to nodes": mapped, "with a roof": counted}
            if not mapped or not counted or document["peaks"] is None:
                raise EngineError(
                    "engine", "The profile says nothing of its kernels.", source.model
                )
            continue
        yield {"said": peaks_text(document["peaks"])}
        yield from ({"said": f"{source.model}: {note}"} for note in document["notes"])
        for phase in document["phases"]:
            yield {
                **_sizes(source),
                "end_to_end_ms": phase["median_ms"],
                "kernels_ms": phase["kernels_ms"],
                "mapped": phase["mapped_share"],
                "of_peak": phase["of_peak"],
                "unknown_ms": phase["unknown_ms"],
            }
        slowest = sorted(document["kernels"], key=lambda k: -k["median_ms"])[:8]
        for one in slowest:
            names = {"sample": source.model, "kernel": one["name"]}
            yield {
                **names,
                "ms": one["median_ms"],
                "share": one["share"],
                "of_peak": one["of_peak"],
            }


def memory(asked: Asked) -> Iterator[Row]:
    """What a step holds at most, as measured, with everything kept and at the default cut."""
    source = replace(_SMALL if asked.dry else _LARGE, training=True)
    asked.repeats = 2
    for strategy in ("keep_all", "min_cut"):
        request = asked.request(source, strategy)
        result: TimeResult = asked.call("time", request)
        for row in result.rows:
            found = {**_sizes(source), "cut": strategy, "what": row.what, "phase": row.phase}
            figures = {"peak_bytes": row.peak_bytes, "capture_bytes": row.capture_bytes}
            if asked.dry:  # the CPU's; that there is one is what the dry run shows
                figures = {"measured": {k: v is not None for k, v in figures.items()}}
            yield {**found, **figures}
            if row.peak_bytes is None:
                raise EngineError("engine", "No peak memory was measured.", row.what)


WORK: dict[str, Callable[[Asked], Iterator[Row]]] = {
    f.__name__: f for f in (kernel, truth, timing, graphs, cublas, profile, memory)
}

NOT_DONE = {
    "boot": "No real driver was loaded, and no function ran on a GPU.",
    "kernel": "Nothing was launched on a GPU; the CPU ran the same functions, and what was built "
    "for GPUs was compiled as far as there is a compiler.",
    "truth": "No number of a GPU's was compared; the CPU's were, and the same models were built "
    "for GPUs.",
    "timing": "Nothing was timed on a GPU; two sources went through the same rounds on the CPU.",
    "graphs": "No graph was recorded or launched; what was built says what would be.",
    "cublas": "cuBLAS was not called; the CPU's libraries went the same way.",
    "profile": "No kernel of a GPU's was timed, and no peak of one measured; the CPU's were.",
    "memory": "A GPU's allocator was not asked; the CPU's tensors were counted.",
}
"""What a dry run leaves open, by the part."""


def main() -> int:
    """Run one part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("engine")
    parser.add_argument("fd", type=int)
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    os.set_inheritable(args.fd, False)
    with os.fdopen(args.fd, "w", encoding="utf-8") as out:

        def say(row: Any) -> None:
            out.write(json.dumps(row) + "\n")
            out.flush()

        try:
            for row in _rows(args.name, args.engine, args.dry_run):
                if args.dry_run and "said" not in row:
                    how = "built, not run" if "built for" in row else "on the CPU"
                    row = {"DRY RUN": how, **row}
                say(row)
            if args.dry_run:
                say({"said": f"NOT DONE: {NOT_DONE[args.name]}"})
        except EngineError as error:
            said = " ".join(filter(None, (error.message, f"({error.where})", error.hint)))
            print(said, file=sys.stderr)
            return 1
    return 0


def _rows(name: str, engine: str, dry: bool) -> Iterator[Row]:
    if name == "boot":
        yield from boot_torch() if engine == "torch" else boot_engine(engine, dry)
        return
    with EngineClient(engine) as client:
        yield from WORK[name](Asked(engine, client, dry))


if __name__ == "__main__":
    raise SystemExit(main())
