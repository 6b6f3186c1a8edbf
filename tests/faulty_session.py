"""An engine without a TVM whose passes go wrong: which, is in the seed; see `PageSession`."""

import os
import time
from dataclasses import replace

from engine.session import EngineError
from tests.page_session import PageSession

WRONG_FOLD = 21  # with this seed fold makes it wrong, in float64 too
ROUGH_FOLD = 22  # … in float32 alone
FATAL_CSE = 23  # … cse ends the process
RAISING_FOLD = 24  # … fold raises
SLOW_FOLD = 25  # … fold makes it slow
WRONG_IMPORT = 26
SLOW_CHECK = 27  # `check` takes a minute


class FaultySession(PageSession):
    """See the module."""

    def step(self, source, pipeline, *, progress):
        self._run(source, pipeline)
        return super().step(source, pipeline, progress=progress)

    def graph_after(self, source, pipeline, index, *, progress):
        self._run(source, pipeline.upto(index))
        return super().graph_after(source, pipeline, index, progress=progress)

    def check(self, source, pipeline, captured, target, captures=False, *, progress):
        on = self._run(source, pipeline)
        if source.seed == SLOW_CHECK:
            time.sleep(60)
        if source.seed == RAISING_FOLD and "fold" in on:
            raise EngineError("pass", "No good.", "FoldConstant")
        rough = source.seed == ROUGH_FOLD and source.dtype == "float32"
        wrong = source.seed == WRONG_IMPORT
        wrong |= "fold" in on and (source.seed == WRONG_FOLD or rough)
        found = super().check(source, pipeline, captured, target, captures, progress=progress)
        return tuple(replace(c, max_abs=0.25, max_rel=0.5) for c in found) if wrong else found

    def time(self, source, pipeline, captured, target, threads, repeats, *, progress):
        result = super().time(
            source, pipeline, captured, target, threads, repeats, progress=progress
        )
        slow = source.seed == SLOW_FOLD and "fold" in self._run(source, pipeline)
        rows = [
            replace(r, ratio_to_eager=3.0) if slow and r.ratio_to_eager else r for r in result.rows
        ]
        return replace(result, rows=tuple(rows))

    def _run(self, source, pipeline):
        on = {s.name for s in pipeline if s.enabled}
        if source.seed == FATAL_CSE and "cse" in on:
            os._exit(3)
        return on
