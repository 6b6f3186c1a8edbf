"""An engine without a TVM whose passes go wrong: which, is in the seed; see `PageSession`."""

import os
import time
from dataclasses import replace

from page_session import PageSession, forward_graph
from relascope.core.errors import EngineError
from relascope.engine.protocol.fault import OF_PASS, PieceResult, Report, Suspects
from relascope.passes.pipeline import TvmPipelines

WRONG_FOLD = 21  # with this seed fold makes it wrong, in float64 too
ROUGH_FOLD = 22  # … in float32 alone
FATAL_CSE = 23  # … cse ends the process
RAISING_FOLD = 24  # … fold raises
SLOW_FOLD = 25  # … fold makes it slow
WRONG_IMPORT = 26
SLOW_CHECK = 27  # `check` takes a minute
WHOLE_FOLD = 28  # as WRONG_FOLD, but it takes a pipeline to show it
SLOW_NARROW = 29  # as WRONG_FOLD, and `narrow` takes a minute
FINE_FOLD = 30  # as WRONG_FOLD, in float64 alone
ROUGH_IMPORT = 31  # as FINE_FOLD, and all is wrong in float32
FLAKY_FOLD = 32  # fold makes it wrong in every second run, the first is right
TAKING_FOLD = 33  # fold takes 15 s and keeps 3 GiB
FATAL_FUSE = 34  # TVM's FuseOps ends the process
SLOW_FUSE = 35  # … `check` takes a minute after it


class FaultySession(PageSession):
    """See the module."""

    def pipelines(self, target="", *, progress):
        known = {"O0": "FuseOps", "O3": "FoldConstant|FuseOps"}
        return TvmPipelines(known, ("DeadCodeElimination",), ("FuseOps",))

    def step(self, source, pipeline, runs=1, *, progress):
        self._run(source, pipeline)
        found = super().step(source, pipeline, progress=progress)
        if source.seed != TAKING_FOLD:
            return found
        taken = {"seconds": 15.0, "kept_bytes": 3 << 30}
        return tuple(replace(r, **taken) if r.pass_name == "fold" else r for r in found)

    def graph_after(self, source, pipeline, index, built=False, *, progress):
        self._run(source, pipeline.upto(index))
        return super().graph_after(source, pipeline, index, progress=progress)

    def check(self, request, captures=False, *, progress):
        source = request.source
        on = self._run(source, request.pipeline)
        if source.seed == SLOW_CHECK or (source.seed == SLOW_FUSE and "FuseOps" in on):
            time.sleep(60)
        if source.seed == RAISING_FOLD and "fold" in on:
            raise EngineError("pass", "No good.", "FoldConstant")
        rough = source.dtype == "float32"
        wrong = source.seed == WRONG_IMPORT or (source.seed == ROUGH_IMPORT and rough)
        if "fold" in on:
            wrong |= source.seed in (WRONG_FOLD, WHOLE_FOLD, SLOW_NARROW)
            wrong |= source.seed in ((ROUGH_FOLD,) if rough else (FINE_FOLD, ROUGH_IMPORT))
        found = super().check(request, captures, progress=progress)
        bad = tuple(replace(c, max_abs=0.25, max_rel=0.5) for c in found)
        if source.seed == FLAKY_FOLD and "fold" in on:
            return tuple(c for run in range(request.runs) for c in (bad if run % 2 else found))
        return (bad if wrong else found) * request.runs

    def time(self, request, baselines=(), variants=(), *, progress):
        result = super().time(request, baselines, variants, progress=progress)
        most = self._folds(request) if request.source.seed == SLOW_FOLD else 0
        fast = {f"{self.ir}, {v.name}" for v in variants if self._folds(v.request) < most}
        rows = [
            replace(r, ratio_to_eager=1.0 if r.what in fast else 3.0) if r.ratio_to_eager else r
            for r in result.rows
        ]
        return replace(result, rows=tuple(rows))

    def _folds(self, request):
        return sum(s.enabled and s.name == "fold" for s in request.pipeline)

    def suspects(self, source, where, *, progress):
        return Suspects(forward_graph(), ("r",) if where.kind == "wrong" else ())

    def narrow(self, source, where, piece, bare=False, *, progress):
        """The relu is at fault, or what FATAL_CSE and RAISING_FOLD are."""
        if source.seed == SLOW_NARROW and len(piece.nodes) < 4:
            time.sleep(60)
        if "r" not in piece.nodes or source.seed == WHOLE_FOLD:
            return PieceResult("good")
        if source.seed == FATAL_CSE and not bare:
            os._exit(3)
        if where.kind == "crash":
            return PieceResult("crash", error=EngineError("pass", "No good.", "FoldConstant"))
        if where.kind == "slow":
            return PieceResult("slow", ratio=3.0)
        if where.kind in OF_PASS:
            return PieceResult(where.kind, seconds=15.0, kept_bytes=3 << 30)
        return PieceResult("wrong", piece.outputs, 0.25, 0.5)

    def report(self, source, where, piece, account, *, progress):
        about = f"{account.model} {source.dtype} {where.pipeline} {' '.join(piece.nodes)}"
        about += f"\n{account.command}"
        files = {"README.md": about.encode(), "lib/x.py": b"x = 1"}
        after = "" if where.kind == "crash" else "after the pass"
        graphs = forward_graph(), None if where.kind == "crash" else forward_graph(False)
        return Report("It is wrong.", "before the pass", after, files, *graphs)

    def _run(self, source, pipeline):
        on = {s.name for s in pipeline if s.enabled}
        if (source.seed, True) in ((FATAL_CSE, "cse" in on), (FATAL_FUSE, "FuseOps" in on)):
            os._exit(3)
        return on
