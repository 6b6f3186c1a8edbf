"""Kernels that can be tuned, and runs that tune them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relascope.engine.building.threads import set_threads
from relascope.engine.measure import tuner
from relascope.engine.measure.tuner import Tunable
from relascope.engine.protocol import records
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import Progress, part
from relascope.engine.protocol.target_text import without
from relascope.engine.protocol.tuning import RECORDS, TuneResult, TuneTask
from relascope.engine.server.builds import Builds
from relascope.engine.server.programs import Programs
from relascope.engine.server.unbuilt import building, check_runs_here


class Tuning:
    """Tunes the kernels of builds; methods as in `Programs`."""

    def __init__(self, programs: Programs, builds: Builds) -> None:
        self._programs, self._builds = programs, builds

    def tasks(self, request: BuildRequest, *, progress: Progress) -> tuple[TuneTask, ...]:
        """The kernels that can be tuned, the largest share first, with `RECORDS` as without."""
        functions = self._tunable(request, True, part(progress, 0.0, 0.7))
        values: Mapping[str, Any] = {}
        set_threads(request.threads)
        if all(f.profiled is not None for f in functions.values()):
            progress(0.7, "building the program")
            _, built = self._builds.built(request, part(progress, 0.7, 0.9))
            masks = built.masks(request.source.seed)
            _, captures = built.forward(masks)
            values = {**built.values, **masks, **captures}
        return tuner.tasks(functions, values, self._records(request), part(progress, 0.9, 1.0))

    def tune(
        self, request: BuildRequest, keys: tuple[str, ...], trials: int, *, progress: Progress
    ) -> TuneResult:
        """Measure schedules of some of the tasks, and keep the results on disk.

        Records (`engine.protocol.records`) grow by batches; after a kill, another call goes on.

        `keys` are of tasks, in the order to tune; none means all. `trials` counts the schedules to
        measure for each, beside earlier ones. Raises EngineError of kind "usage" for an unknown
        key, "target" where nothing can be measured, and "file" where records cannot be kept or
        another process is tuning."""
        check_runs_here(self._programs.backend.target(request.target))
        set_threads(request.threads)
        functions = self._tunable(request, False, part(progress, 0.0, 0.05))
        about = request.target, request.threads or len(os.sched_getaffinity(0))
        plain, place = without(request.target, (RECORDS,)), self._records(request)
        measuring = self._programs.backend.tuner(plain, about[1])
        rest = part(progress, 0.05, 1.0)
        return tuner.tune(functions, keys, trials, measuring, place, about, rest)

    def _records(self, request: BuildRequest) -> Path:
        """The folder of the records that a build for this target uses."""
        programs, version = self._programs, self._programs.backend.version()
        return records.folder(programs.ir, version, request.target, request.threads)

    def _tunable(
        self, request: BuildRequest, watch: bool, progress: Progress
    ) -> dict[str, Tunable]:
        """The kernels of the builds that `time` makes, by phase."""
        backend, target = self._programs.backend, without(request.target, (RECORDS,))
        functions = self._programs.unbuilt(request, progress, "tuned").functions
        watch = watch and backend.target(target).runs_here
        with building(f"Building for tuning{', with profiles' * watch}", request):
            return {
                phase: backend.tunable(f, target, backend.profile(f, target) if watch else None)
                for phase, f in functions.items()
            }
