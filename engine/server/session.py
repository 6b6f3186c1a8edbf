"""The part of a session that is the same for every IR: stepping, remembering, splitting, timing.

An engine supplies a `Backend`: how to import a model, to draw a program, to split and to build it.
Everything is computed from what a call says, and remembered by it: the state after a step is known
by the source and the steps up to it.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.core.identity import carry_identity
from relascope.core.memo import Memo
from relascope.engine import sandbox
from relascope.engine.building import executables, launches
from relascope.engine.building.devices import torch_device
from relascope.engine.building.disassemble import take_apart
from relascope.engine.building.executables import Executable
from relascope.engine.building.explain import explain
from relascope.engine.building.options import BuildOptions, FoundRecords, Function
from relascope.engine.building.threads import set_threads
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.faults import narrow, report
from relascope.engine.faults import recorded as by_record
from relascope.engine.faults.narrow import Start, Values
from relascope.engine.files.formats import is_program
from relascope.engine.limits import limited
from relascope.engine.measure import compiling, peaks, timing, tuner
from relascope.engine.measure.compare import Built, Contender, compare, measure, values_for
from relascope.engine.measure.fleet import connected
from relascope.engine.measure.intermediates import (
    Counterparts,
    ImportedRun,
    Intermediates,
    compare_captures,
    compare_inside,
    results_in,
    shown_in,
    values_inside,
)
from relascope.engine.measure.profile import profile
from relascope.engine.measure.remote import Remote, measure_remote, threads_of
from relascope.engine.measure.tuner import Tunable
from relascope.engine.protocol import records
from relascope.engine.protocol.accuracy import Comparison, NodeError
from relascope.engine.protocol.artefact import Artefact
from relascope.engine.protocol.fault import Account, Report, Shown, Suspects, Where
from relascope.engine.protocol.profile import Peaks, Profile
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import (
    Application,
    ExampleRun,
    ModelInfo,
    ModelInputs,
    ModuleRow,
    NamedModel,
    PassExample,
    SplitResult,
    StepRecord,
)
from relascope.engine.protocol.session import Progress, part, silent
from relascope.engine.protocol.source import INPUTS, ModelSource, by_name, set_of
from relascope.engine.protocol.targets import EngineInfo, Target
from relascope.engine.protocol.times import CompileTimes, TimeResult, TorchSaved, Variant
from relascope.engine.protocol.tuning import RECORDS, Fleet, TuneResult, TuneTask
from relascope.engine.pytorch import named, submodules
from relascope.engine.pytorch.inputs import tensor_type
from relascope.engine.pytorch.inputs.sets import inputs_of
from relascope.engine.pytorch.model import Model, Opened, checked_path, guarded, open_model
from relascope.engine.pytorch.reference import Reference, run_inside
from relascope.engine.pytorch.saved import torch_saved
from relascope.engine.server.backend import Backend, Program, SplitProgram
from relascope.engine.server.examples import run_example
from relascope.engine.server.imported import changes
from relascope.engine.server.pass_tests import run_tests
from relascope.engine.server.program_model import (
    Arrays,
    ProgramModel,
    Run,
    input_words,
    no_pytorch,
    program_model,
)
from relascope.engine.server.split_functions import forward_kernels, split_functions
from relascope.engine.server.steps import (
    Loaded,
    State,
    check_gradient_of,
    check_kind,
    check_order,
    check_signature,
    count_of,
    entry_of,
    passes_of,
    places_of,
)
from relascope.engine.turns import alone
from relascope.passes.applications import Applications
from relascope.passes.catalogue import default_pipeline
from relascope.passes.catalogue import recorded as recorded_pass
from relascope.passes.cuts.cut import roles
from relascope.passes.pipeline import Pipeline, Step
from relascope.passes.search.reduce import Piece
from relascope.samples import SAMPLES

MOST_TEXT = 400_000
"""A program's text is cut after so many characters: more is not read, and slow to compare."""


class PipelineSession:
    """One engine, over its backend: what the app can ask for.

    Every method may raise EngineError; results are plain data that pickles. `progress` may be
    called often; it is cheap.
    """

    def __init__(self, backend: Backend) -> None:
        self.ir, self._backend = backend.ir, backend
        self._opened: Memo[Opened] = Memo(1)
        self._loaded: Memo[Loaded] = Memo(3)
        self._sets: Memo[tuple[torch.Tensor, ...]] = Memo(8)
        self._states: Memo[State] = Memo(96)
        self._references: Memo[Reference] = Memo(1)
        self._imported_runs: Memo[ImportedRun] = Memo(1)
        self._torch_saved: Memo[TorchSaved] = Memo(16)
        self._peaks: Memo[Peaks] = Memo(16)
        self._starts: Memo[Start] = Memo(1)
        self._built: Memo[Executable] = Memo(1)

    def describe(self, *, progress: Progress) -> EngineInfo:
        """Say which TVM runs and what it can compile for."""
        progress(0.0, "looking for devices")
        about = self._backend.describe()
        return replace(about, machine=timing.machine(), sandbox=sandbox.restrictions())

    def target(self, text: str, *, progress: Progress) -> Target:
        """What a target that somebody wrote is for, and whether that can be run here.

        Raises:
            EngineError: kind "target"; TVM refuses it, or cannot write code for it.
        """
        progress(0.0, "looking at the target")
        return self._backend.target(text)

    def load(self, source: ModelSource, *, progress: Progress) -> ModelInfo:
        """Trace or read the model, import it, and return its graph."""
        loaded = self._load(source, progress)
        model, program = loaded.model, loaded.state.program
        types = {n.name: n.outputs[0] for n in loaded.state.graph if n.name}
        arguments = tuple((n, types[n]) for n in (*program.inputs, *program.params) if n in types)
        about = source, loaded.state.graph, model.parameter_elements, arguments
        said = model.notes, model.calls, loaded.changes, model.against
        return ModelInfo(*about, len(program.inputs), loaded.seconds, *said)

    def modules(self, source: ModelSource, *, progress: Progress) -> tuple[ModuleRow, ...]:
        """Every module of the whole model, which is run for that, and not imported."""
        progress(0.0, "running the whole model once")
        if _is_program(source):
            raise no_pytorch(source, "has no modules")
        with guarded(source):
            return submodules.module_rows(self._open(source, progress), source)

    def models(
        self, pattern: str, counted: bool = True, *, progress: Progress
    ) -> tuple[NamedModel, ...]:
        """The models that can be opened by name; see `named.listed`."""
        progress(0.0, "looking for models")
        return named.listed(pattern, counted, progress)

    def inputs(self, source: ModelSource, *, progress: Progress) -> ModelInputs:
        """What the inputs of a file's model are, which is not imported.

        Raises:
            EngineError: as `engine.pytorch.model.open_model`; kind "usage" of a sample.
        """
        if _is_program(source):
            return input_words(self._load(source, progress).model)
        with guarded(source):
            given = self._open(source, progress).given
        if given is None:
            raise EngineError("usage", "A sample brings its own inputs.", source.model)
        return given

    def _open(self, source: ModelSource, progress: Progress) -> Opened:
        """The whole model of a source, as PyTorch has it."""
        whole = replace(_sampled(source), module="", call=1, gradient="tvm")
        return self._opened.get(whole, lambda: open_model(whole, progress))

    def step(
        self, source: ModelSource, pipeline: Pipeline, *, progress: Progress
    ) -> tuple[StepRecord, ...]:
        """Run the pipeline over the imported program, one record a step."""
        records = [s.record for s in self._run(source, pipeline, progress)[1:]]
        return tuple(r for r in records if r is not None)

    def example(self, name: str, *, progress: Progress) -> PassExample | None:
        """Run a pass of the catalogue on its small program; None where it has none.

        Raises:
            EngineError: kind "usage"; no pass has this name.
        """
        progress(0.0, name)
        return run_example(self._backend, entry_of(self.ir, Step(name)))

    def pass_tests(self, name: str, *, progress: Progress) -> tuple[ExampleRun, ...]:
        """Run a person's own pass on the examples in its file, and compare.

        Raises:
            EngineError: kind "usage"; no pass has this name.
        """
        progress(0.0, name)
        return run_tests(self._backend, entry_of(self.ir, Step(name)))

    def graph_after(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        index: int,
        built: bool = False,
        *,
        progress: Progress,
    ) -> Graph:
        """The graph after step `index` of the pipeline; -1 is the imported program.

        After the gradient it is a joint graph: `forward_outputs` is set, and roles are those of
        the cut that keeps everything that crosses.

        Args:
            built: what is built there: without the passes that are only for looking, and only where
                no step failed.
        """
        if built:
            return self._end(source, pipeline.upto(index), progress).base
        return self._run(source, pipeline.upto(index), progress)[-1].graph

    def applications(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> tuple[Application, ...]:
        """Where step `index` put something else, in order, or did before it failed.

        Of passes on our rewriters alone; others are not counted.
        """
        return self._run(source, pipeline.upto(index), progress)[-1].applications

    def verify(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> tuple[str, ...]:
        """What is wrong with the program after step `index` beside its numbers, a sentence each.

        The graph's promises (`core.graph.Graph.validate`), and the program's own: see `problems` of
        each IR's `ir.verify`. -1 is the imported program.
        """
        state = self._run(source, pipeline.upto(index), progress)[-1]
        found: list[str] = []
        try:
            state.graph.validate()
        except ValueError as wrong:
            found.append(f"its graph breaks a promise: {wrong}")
        program = state.program if state.shown is None else state.shown
        return (*found, *self._backend.problems(program))

    def program_after(
        self, source: ModelSource, pipeline: Pipeline, shown: bool = False
    ) -> Program:
        """The engine's own program at the pipeline's end, for a script in the same process.

        Args:
            shown: after passes that are only for looking, what they show, and not what is built.

        Raises:
            EngineError: the model cannot be imported, or a step failed.
        """
        state = self._end(source, pipeline, silent)
        return state.program if not shown or state.shown is None else state.shown

    def text(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> str:
        """The IR's own text after step `index`; -1 is the imported program.

        Constants stand without their values, and what is very long is cut short, which its last
        line then says.
        """
        state = self._run(source, pipeline.upto(index), progress)[-1]
        text = self._backend.text(state.program if state.shown is None else state.shown)
        if len(text) <= MOST_TEXT:
            return text
        lines = text[:MOST_TEXT].splitlines()[:-1]
        more = text.count("\n") - len(lines)
        return "\n".join([*lines, f"… {more} more lines"]) + "\n"

    def split(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captures: tuple[str, ...],
        *,
        progress: Progress,
    ) -> SplitResult:
        """Saw the joint graph at the end of the pipeline into forward and backward.

        Args:
            captures: as of a `BuildRequest`.
        """
        began = time.perf_counter()
        request = BuildRequest(source, pipeline, "").split_at(captures)
        state, split = self._programs(request, progress)
        seconds = time.perf_counter() - began
        functions = self._functions(state, split)
        return SplitResult(functions["forward"].graph, functions["backward"].graph, seconds)

    def check(
        self, request: BuildRequest, captures: bool = False, *, progress: Progress
    ) -> tuple[Comparison, ...]:
        """Build and run once; compare every output (and gradient) with PyTorch.

        Args:
            captures: compare what the forward saves as well, as far as PyTorch has it too; such a
                comparison is named "capture" and the node's id.
        """
        state, split, built = self._build(request, part(progress, 0.0, 0.9))
        with _building("Running what was built", request):
            found = compare(built, part(progress, 0.9, 1.0))
        if not captures or split is None:
            return found
        _, saved = built.forward(_masks(state.program, request.source, built.model))
        values = {i: saved[n] for i, n in zip(split.captures, split.capture_names, strict=True)}
        reference = self._reference(request.source, state, progress)
        return *found, *compare_captures(values, self._results(request, reference))

    def inside(self, request: BuildRequest, *, progress: Progress) -> tuple[NodeError, ...]:
        """Compare the tensors inside what `check` builds with those inside PyTorch's run.

        Every node is kept, so what is run here is fused less than what `check` runs. See
        `engine.measure.intermediates` for what a node is held against; one that has no counterpart
        is left out.

        Returns:
            In graph order; of a program that was split, the forward's nodes, then the backward's,
            by their ids in the joint graph. A node that both compute stands there twice.
        """
        source, target = request.source, request.target
        _check_runs(self._backend.target(target))
        state = self._end(source, request.pipeline, part(progress, 0.0, 0.2))
        if "gradient" in state.done and not state.program.gradients:
            message = (
                "Right after the gradient the program is let bindings: their inside is not seen."
            )
            hint = "Look at the next step, which makes a graph of it."
            raise EngineError("pass", message, str(request.pipeline), hint)
        model = self._load(source, progress).model.on(torch_device(target))
        reference = self._reference(source, state, part(progress, 0.2, 0.3))
        results = self._results(request, reference)
        masks, gradients = _masks(state.program, source, model), state.program.gradients
        whole = Intermediates(self._functions(state, None)["forward"], masks, {}, gradients)
        progress(0.3, "building the program to return what is inside")
        with _building("Building what is inside", request):
            values = values_inside(self._backend, model, whole, target)
        if not request.split:
            return compare_inside(whole, values, results, reference, {})
        state, split = self._programs(request, progress)
        assert split is not None
        saved = dict(zip(split.captures, split.capture_names, strict=True))
        given = {name: values[ident] for ident, name in saved.items() if ident in values}
        found: list[NodeError] = []
        for name, function in self._functions(state, split).items():
            progress(0.5 if name == "forward" else 0.75, f"building the {name} so too")
            half = Intermediates(function, masks, given, gradients if name == "backward" else ())
            with _building(f"Building what is inside of the {name}", request):
                inside = values_inside(self._backend, model, half, target)
            if name == "forward":
                given.update((saved[i], value) for i, value in inside.items() if i in saved)
            found += compare_inside(half, inside, results, reference, values)
        return tuple(found)

    def torch_saved(self, source: ModelSource, *, progress: Progress) -> TorchSaved:
        """Measure what PyTorch keeps for the backward of a model in training."""
        model = self._load(source, part(progress, 0.0, 0.5)).model
        if isinstance(model, ProgramModel):
            raise no_pytorch(source, "has nothing that PyTorch keeps")
        progress(0.5, "asking PyTorch what it keeps")
        return self._torch_saved.get(source, lambda: torch_saved(model.module, model.inputs))

    def _results(self, request: BuildRequest, reference: Reference) -> Counterparts:
        """PyTorch's results of operators, by the ids of nodes at the pipeline's end.

        A node that lost what tells its operator on the way has the one that it had before.
        """
        states = self._run(request.source, request.pipeline, silent)
        if isinstance(self._load(request.source, silent).model, ProgramModel):
            program = states[-1].program
            run = self._imported_run(request.source, bool(program.gradients))
            ends = bool(program.gradients) or not program.grad_outs
            return run.counterparts(states[-1].base, ends)
        ordinals: dict[str, int] = {}
        for state in states:
            for ident, expr in state.exprs.items():
                ordinal = self._backend.ordinal(state.program, expr)
                if ordinal is not None:
                    ordinals[ident] = ordinal
        return results_in(states[-1].base, ordinals, reference)

    def _reference(self, source: ModelSource, state: State, progress: Progress) -> Reference:
        model, gradients = self._load(source, progress).model, bool(state.program.gradients)
        if isinstance(model, ProgramModel):
            progress(0.0, "running the program as it was imported")
            return self._imported_run(source, gradients).reference
        progress(0.0, "running PyTorch operator by operator")
        key = source, gradients
        return self._references.get(key, lambda: run_inside(model, gradients))

    def time(
        self,
        request: BuildRequest,
        baselines: tuple[str, ...] = (),
        variants: tuple[Variant, ...] = (),
        *,
        progress: Progress,
    ) -> TimeResult:
        """Build, compare, and time against PyTorch eager, interleaved.

        Of a program that is split, forward and forward+backward are timed.

        Args:
            baselines: names in `BASELINES`, timed with them.
            variants: built, compared and timed with them too, on the same device; one that cannot
                be is left out, and a note says why.

        Raises:
            EngineError: kind "usage"; a joint graph is not split.
        """
        own, share = f"{self.ir}, {request.target}", 0.5 / (1 + len(variants))
        *_, built = self._build(request, part(progress, 0.0, share), "timed")
        contenders, notes = [Contender(own, request.target, built)], []
        if torch_device(request.target) != "cpu":
            notes.append(f"Kernels: {self._backend.target(request.target).kernels}.")
        for index, one in enumerate(variants, 1):
            target = one.request.target
            try:
                if torch_device(target) != torch_device(request.target):
                    raise EngineError("target", "It runs on another device.", target)
                step = part(progress, share * index, share * (index + 1))
                *_, built = self._build(one.request, step)
                contenders.append(Contender(f"{self.ir}, {one.name}", target, built))
            except EngineError as error:
                notes.append(f"{one.name} is not timed: {error.message}")
        result = measure(contenders, request.repeats, part(progress, 0.5, 1.0), baselines)
        return replace(result, notes=(*notes, *result.notes))

    def time_remote(self, request: BuildRequest, fleet: Fleet, *, progress: Progress) -> TimeResult:
        """Build, run once on a device of a fleet to compare with PyTorch here, and time there.

        Times are of the program alone, by the device's clock; PyTorch does not run beside it. The
        target is the device's, without PyTorch's BLAS, which is not there; so are the threads.
        """
        state, split = self._programs(request, part(progress, 0.0, 0.3), "timed")
        target, model = request.target, self._load(request.source, progress).model
        functions: dict[str, Remote] = {}
        found = None
        if RECORDS in target.split():
            place = self._records(request, fleet)
            found = FoundRecords(place, records.stamp(place))
        with connected(fleet, progress) as session:

            def build(program: Program, *, name: str) -> Remote:
                progress(0.3, f"building for {target}, and sending it")
                options = BuildOptions(target, records=found)
                with _building(f"Building the {name}", request):
                    made = self._backend.remote(program, options, session, name)
                functions["backward" if name == "backward" else "forward"] = made
                return made

            count = threads_of(session, request.threads)
            began = time.perf_counter()
            step = executables.built(state.program, split, build)
            built = _built(model.on("cpu"), state, split, step, began)
            about = (self.ir, target, count)
            last = part(progress, 0.5, 1.0)
            return measure_remote(built, functions, about, fleet, request.repeats, last)

    def compile(self, request: BuildRequest, folder: str = "", *, progress: Progress) -> Artefact:
        """Build for a target that need not be here; the library's size, and each kernel's code.

        Args:
            folder: where the engine's process leaves object files and code; "" to leave none.
        """
        known = self._backend.target(request.target)
        programs = self._programs(request, part(progress, 0.0, 0.3), "compiled")
        functions = self._functions(*programs)
        place, seconds = Path(folder).absolute() if folder else None, 0.0
        taken = []
        for index, (phase, one) in enumerate(functions.items()):
            words = f"building the {phase} for {request.target}"
            progress(0.3 + 0.7 * index / len(functions), words)
            began = time.perf_counter()
            with _building(f"Building the {phase}", request):
                library = self._backend.library(one, phase, request.target)
            seconds += time.perf_counter() - began
            taken.append(take_apart(library, self._backend.compiler_for(request.target), place))
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
        """Time every pass and the build, again and again, in turns.

        Args:
            rounds: at most so many, and at least two.
            seconds: no round is begun after so long.
        """
        state, split, built = self._build(request, part(progress, 0.0, 0.3))
        steps = [(i, s) for i, s in enumerate(request.pipeline) if s.enabled]
        entries = [(i, entry_of(self.ir, s), s) for i, s in steps]

        def build() -> object:
            with _building(f"Building for {request.target}", request):
                return self._backend.build(state.program, split, request.target)

        start = self._load(request.source, silent).state.program
        later = part(progress, 0.3, 1.0)
        passes, builds, yardstick = compiling.measure(start, entries, build, rounds, seconds, later)
        with_backward = built.step.has_backward and split is not None
        own = built.step.own_bytes({**built.values, **built.masks(None)}, with_backward)
        return CompileTimes(passes, builds, yardstick, own)

    def kernels(
        self, source: ModelSource, pipeline: Pipeline, whole: bool = False, *, progress: Progress
    ) -> tuple[tuple[str, ...], ...] | None:
        """The nodes of the forward alone, by id, that TVM's FuseOps makes one kernel each.

        The pipeline must take the gradient. It says what the forward writes to memory, and so what
        recomputing costs (`passes.cost`). None where fusion cannot be followed back to nodes.

        Args:
            whole: of the program as it is built instead, with a gradient or without, not split.
        """
        state = self._end(source, pipeline, progress)
        if whole:
            progress(0.9, "fusing")
            return self._backend.kernels(self._functions(state, None)["forward"])
        if not state.program.gradients:
            raise _no_gradient(pipeline)
        progress(0.9, "fusing")
        return forward_kernels(self._backend, state.program, state.base, state.exprs)

    def profile(self, request: BuildRequest, *, progress: Progress) -> Profile:
        """Build, compare, and time every kernel by itself."""
        state, split, built = self._build(request, part(progress, 0.0, 0.3), "profiled")
        progress(0.3, "building it to be profiled")
        target, functions = request.target, self._functions(state, split)
        with _building("Building it to be profiled", request):
            profiled = {phase: self._backend.profile(f, target) for phase, f in functions.items()}
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
        """What the device of a target does at best; see `engine.measure.peaks`.

        Args:
            threads: as of `time`.
            dtypes: in which products are timed.
            turn: 0 for what profiles are held against, which is measured once; another number
                measures anew.
        """
        set_threads(threads)
        progress(0.0, "what the machine does at best")
        return self._peaks_of(target, dtypes, turn)

    def _peaks_of(self, target: str, dtypes: tuple[str, ...], turn: int) -> Peaks:
        device = torch_device(target)
        key = str(device), torch.get_num_threads(), dtypes, turn
        return self._peaks.get(key, lambda: peaks.measure(device, dtypes))

    def tasks(
        self, request: BuildRequest, fleet: Fleet | None = None, *, progress: Progress
    ) -> tuple[TuneTask, ...]:
        """The kernels that can be tuned, those that take the largest share first.

        A target with `engine.protocol.tuning.RECORDS` has the tasks that it has without.

        Args:
            fleet: whose records count; None for this machine's.
        """
        functions = self._tunable(request, True, part(progress, 0.0, 0.7))
        values: Mapping[str, Any] = {}
        set_threads(request.threads)
        if all(f.profiled is not None for f in functions.values()):
            progress(0.7, "building the program to be run")
            *_, built = self._build(request, part(progress, 0.7, 0.9))
            masks = built.masks(request.source.seed)
            _, captures = built.forward(masks)
            values = {**built.values, **masks, **captures}
        place = self._records(request, fleet)
        return tuner.tasks(functions, values, place, part(progress, 0.9, 1.0))

    def tune(
        self,
        request: BuildRequest,
        keys: tuple[str, ...],
        trials: int,
        fleet: Fleet | None = None,
        *,
        progress: Progress,
    ) -> TuneResult:
        """Measure schedules of some of the tasks, and keep what was found on disk.

        The records (`engine.protocol.records`) grow batch by batch while this works, so it may be
        killed; called again it goes on from them, and measures no schedule twice.

        Args:
            keys: of tasks; one after the other, in this order. None of them means all.
            trials: how many schedules to measure of each task, besides those measured before.
            fleet: devices to measure on; None for this machine.

        Raises:
            EngineError: kind "usage", where a key is no task's; kind "target", where nothing can be
                measured; kind "file", where records cannot be kept or another process is tuning.
        """
        set_threads(request.threads)
        functions = self._tunable(request, False, part(progress, 0.0, 0.05))
        about = request.target, request.threads or len(os.sched_getaffinity(0))
        measuring, place = self._backend.tuner(*about, fleet), self._records(request, fleet)
        rest = part(progress, 0.05, 1.0)
        turn = alone if fleet is None else nullcontext
        return tuner.tune(functions, keys, trials, measuring, place, about, rest, turn)

    def _tunable(
        self, request: BuildRequest, watch: bool, progress: Progress
    ) -> dict[str, Tunable]:
        """The kernels of what `time` builds, by phase."""
        functions = self._functions(*self._programs(request, progress, "tuned"))
        with _building(f"Building what is tuned{', to be profiled' * watch}", request):
            return {
                phase: self._backend.tunable(f, request.target, watch)
                for phase, f in functions.items()
            }

    def _records(self, request: BuildRequest, fleet: Fleet | None) -> Path:
        """Where the records are that a build for this target takes."""
        version = self._backend.version()
        return records.folder(self.ir, version, request.target, request.threads, fleet)

    def suspects(self, source: ModelSource, where: Where, *, progress: Progress) -> Suspects:
        """The program before suspected passes, and the nodes where values first differ after them.

        Of a crash, and of what is slow, no such nodes are known.
        """
        start = self._start(source, where, part(progress, 0.0, 0.5))
        if where.kind != "wrong" or where.tail:
            return Suspects(start.graph, ())
        after = self._end(source, where.pipeline.upto(where.last), part(progress, 0.5, 0.8))
        progress(0.8, "looking where values first differ")
        with limited("Building what is inside after the passes", "suspects", "engine", where):
            later = self._recorded(source, after.program, after.base, after.exprs, where.target)
        return narrow.suspects(start, after.base, later, where.limit)

    def narrow(
        self,
        source: ModelSource,
        where: Where,
        piece: Piece,
        bare: bool = False,
        *,
        progress: Progress,
    ) -> Shown:
        """What the suspected passes do to a piece of the program before them.

        What goes wrong is part of the answer, unless the process ends.

        Args:
            piece: of the graph of `suspects`.
            bare: leave the suspected passes out: whether the piece can be run at all.
        """
        start = self._start(source, where, part(progress, 0.0, 0.5))
        progress(0.5, f"looking at {len(piece.nodes)} of {len(start.graph)} nodes")
        about = source, where, piece, bare
        with limited("A piece of the program, and the passes on it,", "narrow", "engine", about):
            looked = narrow.look if start.after is None else by_record.look
            return looked(self._backend, start, where, piece, bare)

    def report(
        self,
        source: ModelSource,
        where: Where,
        piece: Piece,
        account: Account,
        *,
        progress: Progress,
    ) -> Report:
        """Make a report of such a piece, which runs by itself."""
        start = self._start(source, where, part(progress, 0.0, 0.5))
        progress(0.5, "writing the report")
        return report.report(self._backend, start, where, piece, account)

    def _start(self, source: ModelSource, where: Where, progress: Progress) -> Start:
        """The program before the suspected passes, with the values of its nodes."""

        def make() -> Start:
            before = where.pipeline.upto(where.first - 1)
            state = self._end(source, before, part(progress, 0.0, 0.5))
            program, graph, exprs = state.program, state.base, state.exprs
            steps, tail = passes_of(self.ir, where)
            if state.shown is not None and steps and steps[0][1].looking:
                program = state.shown
                graph, exprs = self._backend.to_graph(program)
            recorded: Values = {}
            if where.building:
                progress(0.5, "recording what is inside the program")
                with limited("Building what is inside before the passes", "", "engine", where):
                    recorded = self._recorded(source, program, graph, exprs, where.target)
            # Against this scale, just what differs by more is over the limit.
            least = where.absolute / where.limit if where.absolute else 0.0
            made = Start(program, graph, exprs, steps, tail, recorded, least)
            if not any(s.name == recorded_pass.NAME for s, _ in steps):
                return made
            left = self._end(source, where.pipeline.upto(where.last), part(progress, 0.6, 0.8))
            about = left.program, left.base, left.exprs
            later = self._recorded(source, *about, where.target) if where.building else {}
            same, differ = narrow.told_apart(made, later, where.limit)
            after = narrow.After(*about, later, frozenset(same), frozenset(differ))
            return replace(made, after=after)

        return self._starts.get((source, where), make)

    def _recorded(
        self,
        source: ModelSource,
        program: Program,
        graph: Graph,
        exprs: Mapping[str, Any],
        target: str,
    ) -> Values:
        """The values of a program's nodes by their ids, arguments included."""
        _check_runs(self._backend.target(target))
        model = self._load(source, silent).model.on(torch_device(target))
        masks = _masks(program, source, model)
        function = Function(program, "main", graph, exprs)
        whole = Intermediates(function, masks, {}, program.gradients)
        try:
            inside = values_inside(self._backend, model, whole, target)
        except EngineError:  # a form that cannot be built so; what has no value gets a random one
            inside = {}
        given = {**values_for(model, program), **masks}
        named = {n.id: given[n.name] for n in graph if n.name in given}
        return {i: t.detach().cpu().numpy() for i, t in {**named, **inside}.items()}

    def _load(self, source: ModelSource, progress: Progress) -> Loaded:
        if source != _sampled(source):
            loaded = self._load(_sampled(source), progress)
            if set_of(source.values):
                inputs = self._set(source, loaded.model)
            else:
                inputs = inputs_of(source.values, loaded.model.inputs, source.seed)
            return replace(loaded, model=replace(loaded.model, inputs=inputs))

        def make() -> Loaded:
            began = time.perf_counter()
            check_gradient_of(self.ir, source)
            first = part(progress, 0.0, 0.5)
            model: Model
            if _is_program(source):
                with guarded(source):
                    path = checked_path(source)
                    imported = self._backend.read_program(path, source, first)
                    model = program_model(imported, source, partial(self._plain, source))
                program = imported.program
            else:
                model = submodules.load(source, first, lambda: self._open(source, first))
                program = self._backend.import_model(model, part(progress, 0.5, 0.9))
            progress(0.9, "drawing up the graph")
            graph, exprs = self._backend.to_graph(program)
            if graph.forward_outputs is not None:  # it was imported with its gradient
                graph = graph.with_roles(roles(graph))
            state = State(program, graph, graph, exprs)
            if isinstance(model, ProgramModel):  # nothing was converted
                return Loaded(model, state, time.perf_counter() - began, ())
            did = changes(self._backend, model, program, graph, exprs)
            return Loaded(model, state, time.perf_counter() - began, did)

        return self._loaded.get(source, make)

    def _set(self, source: ModelSource, first: Model) -> tuple[torch.Tensor, ...]:
        """The inputs of another set of saved ones than the first, of the same types."""
        number, sets = set_of(source.values), source.tensors
        if number > len(sets):
            message = f"There is no {source.values}: {len(sets)} sets of inputs are saved."
            raise EngineError("usage", message, source.values, "Add a file of tensors.")
        other = replace(_sampled(source), tensors=(sets[number - 1], *sets[1:]))

        def make() -> tuple[torch.Tensor, ...]:
            found = submodules.load(other, silent, lambda: self._open(other, silent)).inputs
            for name, one, like in zip(first.input_names, found, first.inputs, strict=True):
                if one.shape != like.shape or one.dtype != like.dtype:
                    file, here = sets[number - 1][0].rpartition("/")[2], tensor_type(one)
                    message = f"{name} is {here} in {file}, and {tensor_type(like)} in the first "
                    hint = "All sets are run by one program: open this one by itself."
                    raise EngineError("input", f"{message}set.", file, hint)
            return found

        return self._sets.get(other, make)

    def _plain(
        self, source: ModelSource, gradients: bool, arrays: Arrays
    ) -> tuple[Run, tuple[str, ...]]:
        """The imported program without optimisation; see `engine.server.program_model`.

        In training it is what the passes make that every way to the gradient has: its dropout
        draws masks, and with `gradients` it has those.
        """
        program = self._least(source, gradients).program
        return self._runner(source, program, arrays), program.gradients

    def _least(self, source: ModelSource, gradients: bool) -> State:
        """The imported program, in training after the passes that every way to the gradient has."""
        whole = default_pipeline(self.ir, True) if source.training else Pipeline()
        steps = tuple(s for s in whole if entry_of(self.ir, s).required)
        names = [s.name for s in steps]
        if source.training and not gradients:
            steps = steps[: names.index("root_grad_out")]
        return self._end(source, Pipeline(steps), silent)

    def _runner(self, source: ModelSource, program: Program, arrays: Arrays) -> Run:
        """What runs a program's module without optimisation."""
        model = self._load(source, silent).model
        masks = draw_masks(program.masks, source.seed)
        given = dict(zip(program.grad_outs, model.grad_outs(), strict=False))  # none without them
        drawn = {n: t.numpy() for n, t in {**masks, **given}.items()}
        run = self._backend.replay.runner(program.mod, {**arrays, **drawn}, "llvm", False)

        def once() -> list[np.ndarray]:
            run()
            return run.results()

        return once

    def _imported_run(self, source: ModelSource, gradients: bool) -> ImportedRun:
        """What is inside the imported program, run without optimisation."""

        def make() -> ImportedRun:
            state, model = self._least(source, gradients), self._load(source, silent).model
            assert isinstance(model, ProgramModel)
            program, graph = state.program, state.base
            exprs = shown_in(self._backend, Function(program, "main", graph, state.exprs))
            values: dict[str, torch.Tensor] = {}
            if exprs:
                shown = self._backend.with_intermediates(program, "main", list(exprs.values()))
                found = self._runner(source, shown, model.arrays())()
                values = dict(zip(exprs, map(torch.tensor, found), strict=True))
            return ImportedRun(graph, values, program.gradients)

        return self._imported_runs.get((source, gradients), make)

    def _run(self, source: ModelSource, pipeline: Pipeline, progress: Progress) -> list[State]:
        """The states from the import to the end of the pipeline."""
        source = _sampled(source)
        state = self._load(source, part(progress, 0.0, 0.5)).state
        states = [state]
        for index, step in enumerate(pipeline):
            progress(0.5 + 0.5 * index / len(pipeline), step.name)
            unit = source, pipeline.upto(index)
            make = partial(self._step, state, step, unit)
            state = self._states.get(unit, make)
            states.append(state)
        return states

    def _step(self, before: State, step: Step, unit: tuple[ModelSource, Pipeline]) -> State:
        entry = entry_of(self.ir, step)
        if not entry.looking:
            before = replace(before, graph=before.base, shown=None)
        if not step.enabled:
            return self._unchanged(before, step, 0.0, None)
        try:
            check_order(entry, before.done, bool(before.program.gradients), unit[0].training)
            counted = Applications(count_of(entry, step))
        except EngineError as error:
            return self._unchanged(before, step, 0.0, error)
        began, printed, message = time.perf_counter(), io.StringIO(), ""
        start = before.program if before.shown is None else before.shown
        failure: EngineError | None = None
        try:
            with limited(entry.title, entry.title, "pass", unit), redirect_stdout(printed):
                if step.name == recorded_pass.NAME:
                    program = self._recorded_module(unit[0], step, start)
                else:
                    program = entry.applied_and_counted(start, step, counted)
            seconds = time.perf_counter() - began
            check_kind(entry.title, start, program)
            message = f"{entry.title} returned a program that is not well-formed: "
            self._backend.check_formed(program)
            message = ""
            graph, exprs = self._backend.to_graph(program)
            check_signature(entry, (start, before.graph), (program, graph))
        except EngineError as error:
            failure = error
        except (Exception, SystemExit) as error:
            fault = explain(error, "step")
            where = fault.where.replace("step", entry.title, 1)
            at = places_of(before, [counted.at] if counted.at is not None else [])
            hint = " ".join([fault.hint, *(f"It looked at {a.words} then." for a in at)]).strip()
            failure = EngineError("pass", message + fault.message, where, hint)
        places = places_of(before, counted.made)
        said = printed.getvalue()[:MOST_TEXT]
        sys.stdout.write(said)
        if failure is not None:
            seconds = time.perf_counter() - began
            same = self._unchanged(before, step, seconds, failure, said)
            return replace(same, applications=places)
        matched = carry_identity(before.graph, graph)
        graph = matched.graph
        if graph.forward_outputs is not None:
            graph = graph.with_roles(roles(graph))
        counts = len(matched.changed), len(matched.added), len(matched.removed), len(graph)
        record = StepRecord(step.name, True, *counts, seconds, graph.operators, None, said)
        if entry.looking:
            return replace(before, graph=graph, record=record, shown=program, applications=places)
        exprs = {matched.renamed[i]: e for i, e in exprs.items()}
        done = before.done | {step.name}
        return State(program, graph, graph, exprs, record, done, applications=places)

    def _recorded_module(self, source: ModelSource, step: Step, start: Program) -> Program:
        """The module that a pass left in a recorded compile, read as any other file is."""
        path = Path(source.model).with_name(recorded_pass.file_of(step))
        read: Program = self._backend.read_program(path, source, silent).program
        return replace(read, digests=start.digests)

    def _unchanged(
        self,
        before: State,
        step: Step,
        seconds: float,
        error: EngineError | None,
        printed: str = "",
    ) -> State:
        """The state after a step that is switched off, or that failed: the program before it."""
        counts, operators = (0, 0, 0, len(before.graph)), before.graph.operators
        record = StepRecord(step.name, step.enabled, *counts, seconds, operators, error, printed)
        return replace(before, record=record, applications=())

    def _end(self, source: ModelSource, pipeline: Pipeline, progress: Progress) -> State:
        """The state at the pipeline's end, for what needs the program: a failed step ends it."""
        states = self._run(source, pipeline, progress)
        for state in states:
            if state.record is not None and state.record.error is not None:
                raise state.record.error
        return states[-1]

    def _programs(
        self, request: BuildRequest, progress: Progress, done: str = ""
    ) -> tuple[State, SplitProgram | None]:
        """What is to be built: the program at the pipeline's end, and both parts where it is split.

        Args:
            done: what is not done to a joint graph that is not split, such as "timed"; "" where
                it may be.
        """
        state = self._end(request.source, request.pipeline, progress)
        joint = bool(state.program.gradients)
        if state.program.grad_outs and not joint:
            message = "The pipeline ends on the way to the gradient, and what it has there is run "
            hint = "Go on to the gradient and what needs it, or stop before root_grad_out."
            raise EngineError("pass", f"{message}by nobody.", str(request.pipeline), hint)
        if not request.split:
            if done and joint:
                message = f"The pipeline ends in a joint graph, which is {done} as two functions."
                hint = "Choose a capture strategy, or leave out the gradient's steps."
                raise EngineError("usage", message, "captures", hint)
            return state, None
        if not joint:
            raise _no_gradient(request.pipeline)
        program, exprs = state.program, state.exprs
        return state, self._backend.split(program, state.base, exprs, request.captures)

    def _functions(self, state: State, split: SplitProgram | None) -> dict[str, Function]:
        """The functions that are built of a program, by phase."""
        if split is None:
            return {"forward": Function(state.program, "main", state.base, state.exprs)}
        return split_functions(self._backend, state.base, split)

    def _build(
        self, request: BuildRequest, progress: Progress, done: str = ""
    ) -> tuple[State, SplitProgram | None, Built]:
        """Build a program to be run here, by the records for its number of threads.

        Args:
            done: as of `_programs`.
        """
        _check_runs(self._backend.target(request.target))
        set_threads(request.threads)
        state, split = self._programs(request, part(progress, 0.0, 0.4), done)
        model = self._load(request.source, progress).model
        progress(0.4, f"building for {request.target}")
        began = time.perf_counter()
        own = replace(request, source=_sampled(request.source))

        def make() -> Executable:
            with _building(f"Building for {request.target}", own):
                return self._backend.build(state.program, split, request.target)

        # Only what is sure to be run again, on other inputs, is worth the memory.
        step = make() if own == request else self._built.get(own, make)
        built = _built(model.on(torch_device(request.target)), state, split, step, began)
        return state, split, built


def _built(
    model: Model, state: State, split: SplitProgram | None, step: Executable, began: float
) -> Built:
    seconds = time.perf_counter() - began
    held = None if split is None else split.cut.bytes
    return Built(model, state.program, step, held, seconds)


def _is_program(source: ModelSource) -> bool:
    """Whether a source is a file with a program that came without PyTorch."""
    if source.model in SAMPLES or by_name(source.model):
        return False
    return is_program(checked_path(source))


def _sampled(source: ModelSource) -> ModelSource:
    """The same model with the sample's own inputs."""
    return replace(source, values=INPUTS[0])


def _building(what: str, request: BuildRequest) -> AbstractContextManager[None]:
    """A unit of `engine.limits`."""
    return limited(what, str(request.pipeline), "engine", request)


def _check_runs(target: Target) -> None:
    """Refuse to run on what is not here: code for another processor may end the process.

    Raises:
        EngineError: kind "target"; says what is missing.
    """
    if not target.runs_here:
        message = f"What is built for this target cannot run here. {target.missing}"
        hint = "Building for it, and its code, can be had: `relascope compile`."
        raise EngineError("target", message, target.name, hint)


def _no_gradient(pipeline: Pipeline) -> EngineError:
    message = "The pipeline ends without a gradient, so there is nothing to split."
    hint = "Load the model for training and keep the gradient's steps on."
    return EngineError("pass", message, str(pipeline), hint)


def _masks(program: Program, source: ModelSource, model: Model) -> dict[str, Any]:
    """Dropout masks as the model's trace draws them: on the CPU, whatever the model is on."""
    drawn = draw_masks(program.masks, source.seed)
    return {name: mask.to(model.device) for name, mask in drawn.items()}
