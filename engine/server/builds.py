"""Builds of programs: libraries, times, profiles."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from relascope.core.errors import EngineError
from relascope.core.memo import Memo
from relascope.engine.building import launches
from relascope.engine.building.devices import torch_device
from relascope.engine.building.disassemble import take_apart
from relascope.engine.building.executables import Executable
from relascope.engine.building.options import UNDER_WAY, built_anew
from relascope.engine.building.threads import set_threads
from relascope.engine.kept_builds import SHELF
from relascope.engine.measure import compiling, peaks
from relascope.engine.measure.compare import Built, Contender, measure
from relascope.engine.measure.profile import profile
from relascope.engine.protocol.artefact import Artefact
from relascope.engine.protocol.profile import Peaks, Profile
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import Progress, part, silent
from relascope.engine.protocol.times import CompileTimes, TimeResult, Variant
from relascope.engine.server.programs import Programs, sampled
from relascope.engine.server.steps import entry_of
from relascope.engine.server.unbuilt import Unbuilt, building, check_runs_here


class Builds:
    """Builds programs and times them; methods as in `Programs`."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._peaks: Memo[Peaks] = Memo(16)
        self._executables: Memo[Executable] = Memo(1)

    def time(
        self,
        request: BuildRequest,
        baselines: tuple[str, ...] = (),
        variants: tuple[Variant, ...] = (),
        *,
        progress: Progress,
    ) -> TimeResult:
        """Build, compare, and time interleaved with PyTorch eager: the forward, and
        forward+backward of a split program. `baselines`, names in `BASELINES`, and `variants`, on
        the same device, are timed with them; one that fails is left out, and a note says why.
        Raises EngineError of kind "usage" where a joint graph is not split."""
        own, share = f"{self._programs.ir}, {request.target}", 0.5 / (1 + len(variants))
        _, built = self.built(request, part(progress, 0.0, share), "timed")
        contenders, notes = [Contender(own, request.target, built)], []
        if torch_device(request.target) != "cpu":
            notes.append(f"Kernels: {self._programs.backend.target(request.target).kernels}.")
        for index, one in enumerate(variants, 1):
            target = one.request.target
            try:
                if torch_device(target) != torch_device(request.target):
                    raise EngineError("target", "it runs on another device.", target)
                step = part(progress, share * index, share * (index + 1))
                _, built = self.built(one.request, step)
                contenders.append(Contender(f"{self._programs.ir}, {one.name}", target, built))
            except EngineError as error:
                notes.append(f"{one.name} was not timed: {error.message}")
        result = measure(contenders, request.repeats, part(progress, 0.5, 1.0), baselines)
        notes += [f"{c.what}: {c.built.note}" for c in contenders if c.built.note]
        return replace(result, notes=(*notes, *result.notes))

    def compile(self, request: BuildRequest, folder: str = "", *, progress: Progress) -> Artefact:
        """Build for a target, whose device need not be here; return the library's size and each
        kernel's code. Writes object files and code to `folder`, if given."""
        known = self._programs.backend.target(request.target)
        functions = self._programs.unbuilt(request, part(progress, 0.0, 0.3), "compiled").functions
        place, seconds = Path(folder).absolute() if folder else None, 0.0
        taken = []
        for index, (phase, one) in enumerate(functions.items()):
            step = part(progress, at := 0.3 + 0.7 * index / len(functions), at)
            step(0.0, f"building the {phase} for {request.target}")
            began = time.perf_counter()
            with building(f"Building the {phase}", request, step):
                library = self._programs.backend.library(one, phase, request.target)
            seconds += time.perf_counter() - began
            compiler = self._programs.backend.compiler_for(request.target)
            taken.append(take_apart(library, compiler, place))
        notes = [] if known.runs_here else [f"It cannot be timed here. {known.missing}"]
        notes += dict.fromkeys(n for t in taken for n in t.notes)
        kernels = tuple(k for t in taken for k in t.kernels)
        notes += launches.notes(kernels, request.target.split()[0])
        files = sorted(str(f.relative_to(place)) for f in place.rglob("*.*")) if place else []
        sizes = [t.library_bytes for t in taken]
        size = None if None in sizes else sum(s for s in sizes if s is not None)
        return Artefact(known, kernels, size, seconds, tuple(notes), tuple(files))

    def compile_times(
        self, request: BuildRequest, rounds: int, seconds: float, *, progress: Progress
    ) -> CompileTimes:
        """Time every pass and the build in turns, for two to `rounds` rounds; none begins after
        `seconds`."""
        unbuilt, built = self.built(request, part(progress, 0.0, 0.3))
        steps = [(i, s) for i, s in enumerate(request.pipeline) if s.enabled]
        entries = [(i, entry_of(self._programs.ir, s), s) for i, s in steps]

        def build() -> object:
            with building(f"Building for {request.target}", request), built_anew():
                return self._build(unbuilt, request.target)

        start = self._programs.loaded(request.source, silent).state.program
        later = part(progress, 0.3, 1.0)
        passes, builds, yardstick = compiling.measure(start, entries, build, rounds, seconds, later)
        with_backward = built.executable.has_backward and unbuilt.split is not None
        own = built.executable.own_memory({**built.values, **built.masks(None)}, with_backward)
        return CompileTimes(passes, builds, yardstick, own.peak if own else None)

    def profile(self, request: BuildRequest, *, progress: Progress) -> Profile:
        unbuilt, built = self.built(request, part(progress, 0.0, 0.3), "profiled")
        progress(0.3, "building for the profile")
        target, functions = request.target, unbuilt.functions
        with building("Building for the profile", request, part(progress, 0.3, 0.3)):
            profiled = {}
            for phase, one in functions.items():
                UNDER_WAY.begin(phase)
                profiled[phase] = self._programs.backend.profile(one, target)
        set_threads(request.threads)
        graphs, repeats = {phase: f.graph for phase, f in functions.items()}, request.repeats
        best = partial(self._peaks_of, target, turn=0)
        return profile(built, profiled, graphs, target, repeats, part(progress, 0.6, 1.0), best)

    def peaks(
        self,
        target: str,
        threads: int,
        dtypes: tuple[str, ...],
        turn: int = 0,
        *,
        progress: Progress,
    ) -> Peaks:
        """The best rates of a target's device; see `engine.measure.peaks`. Turn 0 measures once,
        for profiles; another number measures again."""
        set_threads(threads)
        progress(0.0, "measuring what the machine does at best")
        return self._peaks_of(target, dtypes, turn)

    def _peaks_of(self, target: str, dtypes: tuple[str, ...], turn: int) -> Peaks:
        device = torch_device(target)
        key = str(device), torch.get_num_threads(), dtypes, turn
        return self._peaks.get(key, lambda: peaks.measure(device, dtypes))

    def built(
        self, request: BuildRequest, progress: Progress, done: str = ""
    ) -> tuple[Unbuilt, Built]:
        check_runs_here(self._programs.backend.target(request.target))
        set_threads(request.threads)
        unbuilt = self._programs.unbuilt(request, part(progress, 0.0, 0.4), done)
        model = self._programs.loaded(request.source, progress).model
        progress(0.4, f"building for {request.target}")
        began, taken = time.perf_counter(), SHELF.taken
        own = replace(request, source=sampled(request.source))

        def make() -> Executable:
            with building(f"Building for {request.target}", own, part(progress, 0.4, 0.4)):
                return self._build(unbuilt, request.target)

        # Only a build that is sure to run again, on other inputs, is worth the memory.
        step = make() if own == request else self._executables.get(own, make)
        seconds = time.perf_counter() - began
        model = model.on(torch_device(request.target))
        captures = None if unbuilt.split is None else unbuilt.split.cut.bytes
        kept = SHELF.taken > taken
        return unbuilt, Built(model, unbuilt.state.program, step, captures, seconds, kept)

    def _build(self, unbuilt: Unbuilt, target: str) -> Executable:
        return self._programs.backend.build(unbuilt.state.program, unbuilt.split, target)
