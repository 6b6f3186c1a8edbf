"""The part of a session that is the same for every IR: stepping, remembering, splitting, timing.

An engine supplies a `Backend`: how to import a model, to draw a program, to split and to build it.
Everything is computed from what a call says, and remembered by it: the state after a step is known
by the source and the steps up to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.core.identity import carry_identity
from relascope.core.memo import Memo
from relascope.engine.building import executables as steps
from relascope.engine.building.devices import torch_device
from relascope.engine.building.disassemble import take_apart
from relascope.engine.building.explain import explain
from relascope.engine.building.options import BuildOptions, Found
from relascope.engine.building.threads import set_threads
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.faults import narrow as narrowing
from relascope.engine.faults import report as reporting
from relascope.engine.measure import tuner
from relascope.engine.measure.compare import Built, Contender, compare, measure, values_for
from relascope.engine.measure.fleet import connected
from relascope.engine.measure.intermediates import (
    Counterparts,
    Part,
    compare_captures,
    compare_inside,
    results_in,
    values_inside,
)
from relascope.engine.measure.peaks import measure as measure_peaks
from relascope.engine.measure.profile import profile
from relascope.engine.measure.remote import Remote, measure_remote, threads_of
from relascope.engine.measure.tuner import Tunable
from relascope.engine.protocol import records
from relascope.engine.protocol.accuracy import Comparison, NodeError
from relascope.engine.protocol.artefact import Artefact
from relascope.engine.protocol.fault import Report, Shown, Suspects, Told, Where
from relascope.engine.protocol.profile import Peaks, Profile
from relascope.engine.protocol.results import ModelInfo, PassExample, SplitResult, StepRecord
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.targets import EngineInfo, Target
from relascope.engine.protocol.times import Rivals, TimeResult, Way
from relascope.engine.protocol.tuning import RECORDS, Fleet, TuneResult, TuneTask
from relascope.engine.pytorch.model import Model, load_model
from relascope.engine.pytorch.reference import Reference, run_inside
from relascope.engine.pytorch.rivals import rivals
from relascope.engine.server.backend import Backend, Halves, Program
from relascope.engine.server.examples import run_example
from relascope.engine.server.halves import forward_kernels, half_graph
from relascope.engine.server.steps import (
    _arguments,
    _check_gradient,
    _check_order,
    _entry,
    _Loaded,
    _named,
    _pass,
    _State,
    _suspected,
    _tail,
)
from relascope.passes.cuts.cut import roles
from relascope.passes.pipeline import Pipeline, Step
from relascope.passes.search.reduce import Piece

MOST_TEXT = 400_000
"""A program's text is cut after so many characters: more is not read, and slow to compare."""


class PipelineSession:
    """`engine.protocol.session.Session` over a backend."""

    def __init__(self, backend: Backend) -> None:
        self.ir, self._backend = backend.ir, backend
        self._loaded: Memo[_Loaded] = Memo(3)
        self._states: Memo[_State] = Memo(96)
        self._references: Memo[Reference] = Memo(1)
        self._rivals: Memo[Rivals] = Memo(16)
        self._peaks: Memo[Peaks] = Memo(16)
        self._starts: Memo[narrowing.Start] = Memo(1)

    def describe(self, *, progress: Progress) -> EngineInfo:
        """Say which TVM runs and what it can compile for."""
        progress(0.0, "looking for devices")
        return self._backend.describe()

    def target(self, text: str, *, progress: Progress) -> Target:
        """What a target that somebody wrote is for, and whether that can be run here."""
        progress(0.0, "looking at the target")
        return self._backend.target(text)

    def load(self, source: ModelSource, *, progress: Progress) -> ModelInfo:
        """Trace or read the model, import it, and return its graph."""
        loaded = self._load(source, progress)
        model, program = loaded.model, loaded.state.program
        types = {n.name: n.outputs[0] for n in loaded.state.graph if n.name}
        arguments = tuple((n, types[n]) for n in (*program.inputs, *program.params) if n in types)
        return ModelInfo(
            source=source,
            graph=loaded.state.graph,
            parameters=model.parameter_elements,
            arguments=arguments,
            input_count=len(program.inputs),
            seconds=loaded.seconds,
            notes=model.notes,
        )

    def step(
        self, source: ModelSource, pipeline: Pipeline, *, progress: Progress
    ) -> tuple[StepRecord, ...]:
        """Run the pipeline over the imported program, one record a step."""
        records = [s.record for s in self._run(source, pipeline, progress)[1:]]
        return tuple(r for r in records if r is not None)

    def example(self, name: str, *, progress: Progress) -> PassExample | None:
        """Run a pass on its small program; None where it has none."""
        progress(0.0, name)
        return run_example(self._backend, _entry(self.ir, Step(name)))

    def graph_after(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> Graph:
        """The graph after step `index`; -1 is the imported program."""
        return self._run(source, pipeline.upto(index), progress)[-1].graph

    def program_after(
        self, source: ModelSource, pipeline: Pipeline, shown: bool = False
    ) -> Program:
        """The engine's own program at the pipeline's end, for a script in the same process.

        Args:
            shown: after passes that are only for looking, what they show, and not what is built.

        Raises:
            EngineError: the model cannot be imported, or a step failed.
        """
        state = self._end(source, pipeline, lambda fraction, text: None)
        return state.program if not shown or state.shown is None else state.shown

    def text(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> str:
        """The IR's own text after step `index`; -1 is the imported program."""
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
        captured: tuple[str, ...],
        *,
        progress: Progress,
    ) -> SplitResult:
        """Saw the joint graph at the end of the pipeline into forward and backward."""
        began = time.perf_counter()
        state, halves = self._halves(source, pipeline, captured, progress)
        seconds = time.perf_counter() - began
        forward, _ = half_graph(self._backend, state.base, halves, "forward")
        backward, _ = half_graph(self._backend, state.base, halves, "backward")
        return SplitResult(forward, backward, seconds)

    def check(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        captures: bool = False,
        *,
        progress: Progress,
    ) -> tuple[Comparison, ...]:
        """Build and run once; compare every output, gradient and, if wished, capture."""
        built = self._build(source, pipeline, captured, target, _part(progress, 0.0, 0.9))
        found = compare(built, _part(progress, 0.9, 1.0))
        if not captures or captured is None:
            return found
        state, halves = self._halves(source, pipeline, captured, progress)
        _, saved = built.forward(_masks(state.program, source, built.model))
        values = {i: saved[n] for i, n in zip(halves.captures, halves.saved, strict=True)}
        results = self._results(source, pipeline, self._reference(source, state, progress))
        return *found, *compare_captures(values, results)

    def inside(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        *,
        progress: Progress,
    ) -> tuple[NodeError, ...]:
        """Compare the tensors inside a program with those inside PyTorch's run."""
        _check_runs(self._backend.target(target))
        state = self._end(source, pipeline, _part(progress, 0.0, 0.2))
        if "gradient" in state.done and not state.program.gradients:
            raise EngineError(
                "pass",
                "Right after the gradient, the program is let bindings, and what is inside "
                "those cannot be returned.",
                str(pipeline),
                "Look at the next step, which makes a graph of it.",
            )
        model = self._load(source, progress).model.on(torch_device(target))
        reference = self._reference(source, state, _part(progress, 0.2, 0.3))
        results = self._results(source, pipeline, reference)
        program, masks = state.program, _masks(state.program, source, model)
        whole = Part(program, "main", state.base, state.exprs, masks, {}, program.gradients)
        progress(0.3, "building the program to return what is inside")
        values = values_inside(self._backend, model, whole, target)
        if captured is None:
            return compare_inside(whole, values, results, reference, {})
        _, halves = self._halves(source, pipeline, captured, progress)
        saved = dict(zip(halves.captures, halves.saved, strict=True))
        given = {name: values[ident] for ident, name in saved.items() if ident in values}
        found: list[NodeError] = []
        for name, half, gradients in (
            ("forward", halves.forward, ()),
            ("backward", halves.backward, program.gradients),
        ):
            progress(0.5 if name == "forward" else 0.75, f"building the {name} so too")
            graph, named = half_graph(self._backend, state.base, halves, name)
            part = Part(half, name, graph, named, masks, given, gradients)
            inside = values_inside(self._backend, model, part, target)
            if name == "forward":
                given.update((saved[i], value) for i, value in inside.items() if i in saved)
            found += compare_inside(part, inside, results, reference, values)
        return tuple(found)

    def rivals(self, source: ModelSource, *, progress: Progress) -> Rivals:
        """Measure what PyTorch keeps for the backward of a model in training."""
        model = self._load(source, _part(progress, 0.0, 0.5)).model
        progress(0.5, "asking PyTorch what it keeps")
        return self._rivals.get(source, lambda: rivals(model.module, model.inputs))

    def _results(
        self, source: ModelSource, pipeline: Pipeline, reference: Reference
    ) -> Counterparts:
        """PyTorch's results of operators, by the ids of nodes at the pipeline's end.

        A node that lost what tells its operator on the way has the one that it had before.
        """
        states = self._run(source, pipeline, lambda fraction, text: None)
        ordinals: dict[str, int] = {}
        for state in states:
            for ident, expr in state.exprs.items():
                ordinal = self._backend.ordinal(state.program, expr)
                if ordinal is not None:
                    ordinals[ident] = ordinal
        return results_in(states[-1].base, ordinals, reference)

    def _reference(self, source: ModelSource, state: _State, progress: Progress) -> Reference:
        progress(0.0, "running PyTorch operator by operator")
        model, gradients = self._load(source, progress).model, bool(state.program.gradients)
        key = source, gradients
        return self._references.get(key, lambda: run_inside(model, gradients))

    def time(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        repeats: int,
        rivals: tuple[str, ...] = (),
        ways: tuple[Way, ...] = (),
        *,
        progress: Progress,
    ) -> TimeResult:
        """Build, compare, and time against PyTorch eager, interleaved."""
        if captured is None and self._end(source, pipeline, progress).program.gradients:
            raise _whole_joint("timed")
        share = 0.5 / (1 + len(ways))
        built = self._build(
            source, pipeline, captured, target, _part(progress, 0.0, share), threads
        )
        others: dict[str, Built] = {}
        notes = []
        for index, way in enumerate(ways, 1):
            part = _part(progress, share * index, share * (index + 1))
            try:
                if torch_device(way.target) != torch_device(target):
                    raise EngineError("target", "It runs on another device.", way.target)
                others[f"{self.ir}, {way.name}"] = self._build(
                    source, way.pipeline, way.captured, way.target, part, threads
                )
            except EngineError as error:
                notes.append(f"{way.name} is not timed: {error.message}")
        targets = {f"{self.ir}, {way.name}": way.target for way in ways}
        contenders = [Contender(f"{self.ir}, {target}", target, built)]
        contenders += [Contender(n, targets[n], b) for n, b in others.items()]
        result = measure(contenders, repeats, _part(progress, 0.5, 1.0), rivals)
        return replace(result, notes=(*notes, *result.notes))

    def time_remote(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        repeats: int,
        fleet: Fleet,
        *,
        progress: Progress,
    ) -> TimeResult:
        """Build, compare, and time on a device of a fleet."""
        if captured is None and self._end(source, pipeline, progress).program.gradients:
            raise _whole_joint("timed")
        with connected(fleet, progress) as session:
            return self._timed_there(
                source, pipeline, captured, target, threads, repeats, fleet, session, progress
            )

    def _timed_there(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        repeats: int,
        fleet: Fleet,
        session: Any,
        progress: Progress,
    ) -> TimeResult:
        halves = None
        if captured is None:
            state = self._end(source, pipeline, _part(progress, 0.0, 0.3))
        else:
            state, halves = self._halves(source, pipeline, captured, _part(progress, 0.0, 0.3))
        model, found = self._load(source, progress).model, None
        if RECORDS in target.split():
            version = self._backend.version()
            place = records.folder(self.ir, version, target, threads, fleet)
            found = Found(place, records.stamp(place))
        functions: dict[str, Remote] = {}
        count = threads_of(session, threads)

        def build(program: Program, *, name: str) -> Remote:
            progress(0.3, f"building for {target}, and sending it")
            made = self._backend.remote(program, BuildOptions(target, records=found), session, name)
            functions["backward" if name == "backward" else "forward"] = made
            return made

        began = time.perf_counter()
        step = steps.built(state.program, halves, build)
        seconds = time.perf_counter() - began
        held = None if halves is None else halves.cut.bytes
        built = Built(model.on("cpu"), state.program, step, held, seconds)
        about = (self.ir, target, count)
        return measure_remote(built, functions, about, fleet, repeats, _part(progress, 0.5, 1.0))

    def compile(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        folder: str = "",
        *,
        progress: Progress,
    ) -> Artefact:
        """Build for a target that need not be here; sizes and code."""
        known = self._backend.target(target)
        if captured is None:
            state = self._end(source, pipeline, _part(progress, 0.0, 0.3))
            if state.program.gradients:
                raise _whole_joint("compiled")
            functions = {"forward": (state.program, "main")}
        else:
            _, halves = self._halves(source, pipeline, captured, _part(progress, 0.0, 0.3))
            functions = {n: (getattr(halves, n), n) for n in ("forward", "backward")}
        place, seconds = Path(folder).absolute() if folder else None, 0.0
        taken = []
        for index, (phase, (program, name)) in enumerate(functions.items()):
            progress(0.3 + 0.7 * index / len(functions), f"building the {phase} for {target}")
            began = time.perf_counter()
            library = self._backend.library(program, name, phase, target)
            seconds += time.perf_counter() - began
            taken.append(take_apart(library, self._backend.compiler_for(target), place))
        notes = [] if known.runs_here else [f"It cannot be timed here. {known.missing}"]
        notes += dict.fromkeys(n for t in taken for n in t.notes)
        files = sorted(str(f.relative_to(place)) for f in place.rglob("*.*")) if place else []
        return Artefact(
            known,
            tuple(k for t in taken for k in t.kernels),
            sum(t.library_bytes for t in taken),
            seconds,
            tuple(notes),
            tuple(files),
        )

    def kernels(
        self, source: ModelSource, pipeline: Pipeline, whole: bool = False, *, progress: Progress
    ) -> tuple[tuple[str, ...], ...] | None:
        """The nodes of the forward, or of the whole program, that become one kernel each."""
        state = self._end(source, pipeline, progress)
        if whole:
            progress(0.9, "fusing")
            return self._backend.kernels(state.program, "main", state.exprs)
        if not state.program.gradients:
            raise _no_gradient(pipeline)
        progress(0.9, "fusing")
        return forward_kernels(self._backend, state.program, state.base, state.exprs)

    def profile(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        repeats: int,
        *,
        progress: Progress,
    ) -> Profile:
        """Build, compare, and time every kernel by itself."""
        if captured is None and self._end(source, pipeline, progress).program.gradients:
            raise _whole_joint("profiled")
        part = _part(progress, 0.0, 0.3)
        built = self._build(source, pipeline, captured, target, part, threads)
        progress(0.3, "building it to be watched")
        watched = self._backend.watched
        if captured is None:
            state = self._end(source, pipeline, progress)
            functions = {"forward": watched(state.program, "main", state.exprs, target)}
            graphs = {"forward": state.base}
        else:
            state, halves = self._halves(source, pipeline, captured, progress)
            functions, graphs = {}, {}
            for name, half in (("forward", halves.forward), ("backward", halves.backward)):
                graphs[name], named = half_graph(self._backend, state.base, halves, name)
                functions[name] = watched(half, name, named, target)
        set_threads(threads)
        return profile(
            built,
            functions,
            graphs,
            target,
            repeats,
            _part(progress, 0.6, 1.0),
            lambda dtypes: self._peaks_of(target, dtypes, 0),
        )

    def peaks(
        self,
        target: str,
        threads: int,
        dtypes: tuple[str, ...],
        turn: int = 0,
        *,
        progress: Progress,
    ) -> Peaks:
        """Measure what the machine does at best, or say what was measured before."""
        set_threads(threads)
        progress(0.0, "what the machine does at best")
        return self._peaks_of(target, dtypes, turn)

    def _peaks_of(self, target: str, dtypes: tuple[str, ...], turn: int) -> Peaks:
        device = torch_device(target)
        key = str(device), torch.get_num_threads(), dtypes, turn
        return self._peaks.get(key, lambda: measure_peaks(device, dtypes))

    def tasks(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        fleet: Fleet | None = None,
        *,
        progress: Progress,
    ) -> tuple[TuneTask, ...]:
        """The kernels that can be tuned, those that take the largest share first."""
        part = _part(progress, 0.0, 0.7)
        functions = self._tunable(source, pipeline, captured, target, True, part)
        place = records.folder(self.ir, self._backend.version(), target, threads, fleet)
        values: Mapping[str, Any] = {}
        set_threads(threads)
        if all(f.watched is not None for f in functions.values()):
            progress(0.7, "building the program to be run")
            part = _part(progress, 0.7, 0.9)
            built = self._build(source, pipeline, captured, target, part, threads)
            masks = built.masks(source.seed)
            _, captures = built.forward(masks)
            values = {**built.values, **masks, **captures}
        return tuner.tasks(functions, values, place, _part(progress, 0.9, 1.0))

    def tune(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        keys: tuple[str, ...],
        trials: int,
        fleet: Fleet | None = None,
        *,
        progress: Progress,
    ) -> TuneResult:
        """Measure schedules of some of the tasks, and keep what was found on disk."""
        set_threads(threads)
        part = _part(progress, 0.0, 0.05)
        functions = self._tunable(source, pipeline, captured, target, False, part)
        place = records.folder(self.ir, self._backend.version(), target, threads, fleet)
        count = threads or len(os.sched_getaffinity(0))
        measuring = self._backend.tuner(target, count, fleet)
        about = (target, count)
        return tuner.tune(
            functions, keys, trials, measuring, place, about, _part(progress, 0.05, 1.0)
        )

    def _tunable(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        watch: bool,
        progress: Progress,
    ) -> dict[str, Tunable]:
        """The kernels of what `time` builds, by phase."""
        if captured is None:
            state = self._end(source, pipeline, progress)
            if state.program.gradients:
                raise _whole_joint("tuned")
            whole = self._backend.tunable(state.program, "main", state.exprs, target, watch)
            return {"forward": whole}
        state, halves = self._halves(source, pipeline, captured, progress)
        found = {}
        for name, half in (("forward", halves.forward), ("backward", halves.backward)):
            _, named = half_graph(self._backend, state.base, halves, name)
            found[name] = self._backend.tunable(half, name, named, target, watch)
        return found

    def suspects(self, source: ModelSource, where: Where, *, progress: Progress) -> Suspects:
        """The program before the suspected passes, and where values first differ."""
        start = self._start(source, where, _part(progress, 0.0, 0.5))
        if where.kind != "wrong" or where.tail:
            return Suspects(start.graph, ())
        after = self._end(source, where.pipeline.upto(where.last), _part(progress, 0.5, 0.8))
        progress(0.8, "looking where values first differ")
        later = self._recorded(source, after.program, after.base, after.exprs, where.target)
        return narrowing.suspects(start, after.base, later, where.limit)

    def narrow(
        self,
        source: ModelSource,
        where: Where,
        piece: Piece,
        bare: bool = False,
        *,
        progress: Progress,
    ) -> Shown:
        """What a piece of the program before the suspected passes shows."""
        start = self._start(source, where, _part(progress, 0.0, 0.5))
        progress(0.5, f"looking at {len(piece.nodes)} of {len(start.graph)} nodes")
        return narrowing.look(self._backend, start, where, piece, bare)

    def report(
        self, source: ModelSource, where: Where, piece: Piece, told: Told, *, progress: Progress
    ) -> Report:
        """Make a report of a piece that shows the fault."""
        start = self._start(source, where, _part(progress, 0.0, 0.5))
        progress(0.5, "writing the report")
        steps = [_named(self.ir, s) for s in _suspected(where)]
        tail = [_named(self.ir, s) for s in _tail(self.ir, where)]
        version = self._backend.replay.version()
        return reporting.report(
            self._backend, self.ir, version, start, where, (steps, tail), piece, told
        )

    def _start(self, source: ModelSource, where: Where, progress: Progress) -> narrowing.Start:
        """The program before the suspected passes, with the values of its nodes."""

        def make() -> narrowing.Start:
            before = where.pipeline.upto(where.first - 1)
            state = self._end(source, before, _part(progress, 0.0, 0.5))
            program, graph, exprs = state.program, state.base, state.exprs
            steps = _suspected(where)
            looking = bool(steps) and _entry(self.ir, steps[0]).looking
            if state.shown is not None and looking:
                program = state.shown
                graph, exprs = self._backend.to_graph(program)
            recorded: narrowing.Values = {}
            if where.building:
                progress(0.5, "recording what is inside the program")
                recorded = self._recorded(source, program, graph, exprs, where.target)
            return narrowing.Start(
                program,
                graph,
                exprs,
                [_pass(self.ir, s) for s in steps],
                [_pass(self.ir, s) for s in _tail(self.ir, where)],
                recorded,
            )

        return self._starts.get((source, where), make)

    def _recorded(
        self,
        source: ModelSource,
        program: Program,
        graph: Graph,
        exprs: Mapping[str, Any],
        target: str,
    ) -> narrowing.Values:
        """The values of a program's nodes by their ids, arguments included."""
        _check_runs(self._backend.target(target))
        model = self._load(source, lambda fraction, text: None).model.on(torch_device(target))
        masks = _masks(program, source, model)
        whole = Part(program, "main", graph, exprs, masks, {}, program.gradients)
        try:
            inside = values_inside(self._backend, model, whole, target)
        except EngineError:  # a form that cannot be built so; what has no value gets a random one
            inside = {}
        given = {**values_for(model, program), **masks}
        named = {n.id: given[n.name] for n in graph if n.name in given}
        return {i: t.detach().cpu().numpy() for i, t in {**named, **inside}.items()}

    def _load(self, source: ModelSource, progress: Progress) -> _Loaded:
        def make() -> _Loaded:
            began = time.perf_counter()
            _check_gradient(self.ir, source)
            model = load_model(source, _part(progress, 0.0, 0.5))
            program = self._backend.import_model(model, _part(progress, 0.5, 0.9))
            progress(0.9, "drawing up the graph")
            graph, exprs = self._backend.to_graph(program)
            if graph.forward_outputs is not None:  # it was imported with its gradient
                graph = graph.with_roles(roles(graph))
            state = _State(program, graph, graph, exprs)
            return _Loaded(model, state, time.perf_counter() - began)

        return self._loaded.get(source, make)

    def _run(self, source: ModelSource, pipeline: Pipeline, progress: Progress) -> list[_State]:
        """The states from the import to the end of the pipeline."""
        state = self._load(source, _part(progress, 0.0, 0.5)).state
        states = [state]
        for index, step in enumerate(pipeline):
            progress(0.5 + 0.5 * index / len(pipeline), step.name)
            make = partial(self._step, state, step)
            state = self._states.get((source, pipeline.upto(index)), make)
            states.append(state)
        return states

    def _step(self, before: _State, step: Step) -> _State:
        entry = _entry(self.ir, step)
        if not entry.looking:
            before = replace(before, graph=before.base, shown=None)
        if not step.enabled:
            return self._unchanged(before, step, 0.0, None)
        try:
            _check_order(entry, before.done, bool(before.program.gradients))
            told = _arguments(entry, step)
        except EngineError as error:
            return self._unchanged(before, step, 0.0, error)
        began = time.perf_counter()
        try:
            start = before.program if before.shown is None else before.shown
            program = entry.load()(start, **told)
            seconds = time.perf_counter() - began
            graph, exprs = self._backend.to_graph(program)
        except EngineError as error:
            return self._unchanged(before, step, time.perf_counter() - began, error)
        except Exception as error:
            fault = explain(error, "step")
            where = fault.where.replace("step", entry.title, 1)
            named = EngineError("pass", fault.message, where, fault.hint)
            return self._unchanged(before, step, time.perf_counter() - began, named)
        matched = carry_identity(before.graph, graph)
        graph = matched.graph
        if graph.forward_outputs is not None:
            graph = graph.with_roles(roles(graph))
        record = StepRecord(
            step.name,
            True,
            len(matched.changed),
            len(matched.added),
            len(matched.removed),
            len(graph),
            seconds,
            graph.operators,
        )
        if entry.looking:
            return replace(before, graph=graph, record=record, shown=program)
        exprs = {matched.renamed[i]: e for i, e in exprs.items()}
        return _State(program, graph, graph, exprs, record, before.done | {step.name})

    def _unchanged(
        self, before: _State, step: Step, seconds: float, error: EngineError | None
    ) -> _State:
        """The state after a step that is switched off, or that failed: the program before it."""
        record = StepRecord(
            step.name,
            step.enabled,
            0,
            0,
            0,
            len(before.graph),
            seconds,
            before.graph.operators,
            error,
        )
        return replace(before, record=record)

    def _end(self, source: ModelSource, pipeline: Pipeline, progress: Progress) -> _State:
        """The state at the pipeline's end, for what needs the program: a failed step ends it."""
        states = self._run(source, pipeline, progress)
        for state in states:
            if state.record is not None and state.record.error is not None:
                raise state.record.error
        return states[-1]

    def _halves(
        self, source: ModelSource, pipeline: Pipeline, captured: tuple[str, ...], progress: Progress
    ) -> tuple[_State, Halves]:
        state = self._end(source, pipeline, progress)
        if not state.program.gradients:
            raise _no_gradient(pipeline)
        return state, self._backend.split(state.program, state.base, state.exprs, captured)

    def _build(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        progress: Progress,
        threads: int = 0,
    ) -> Built:
        """Build a program, to use so many threads, on which hangs which records it takes."""
        steps, building = _part(progress, 0.0, 0.4), _part(progress, 0.4, 1.0)
        _check_runs(self._backend.target(target))
        set_threads(threads)
        halves = None
        if captured is None:
            state = self._end(source, pipeline, steps)
        else:
            state, halves = self._halves(source, pipeline, captured, steps)
        model = self._load(source, progress).model
        building(0.0, f"building for {target}")
        began = time.perf_counter()
        runs = self._backend.build(state.program, halves, target)
        seconds = time.perf_counter() - began
        held = None if halves is None else halves.cut.bytes
        return Built(model.on(torch_device(target)), state.program, runs, held, seconds)


def _check_runs(target: Target) -> None:
    """Refuse to run on what is not here: code for another processor may end the process.

    Raises:
        EngineError: kind "target"; says what is missing.
    """
    if not target.runs_here:
        raise EngineError(
            "target",
            f"What is built for this target cannot run here. {target.missing}",
            target.name,
            "Building for it, and its code, can be had: `relascope compile`.",
        )


def _no_gradient(pipeline: Pipeline) -> EngineError:
    return EngineError(
        "pass",
        "The pipeline ends without a gradient, so there is nothing to split.",
        str(pipeline),
        "Load the model for training and keep the gradient's steps on.",
    )


def _masks(program: Program, source: ModelSource, model: Model) -> dict[str, Any]:
    """Dropout masks as the model's trace draws them: on the CPU, whatever the model is on."""
    drawn = draw_masks(program.masks, source.seed)
    return {name: mask.to(model.device) for name, mask in drawn.items()}


def _whole_joint(done: str) -> EngineError:
    return EngineError(
        "usage",
        f"The pipeline ends in a joint graph, which is {done} as two functions.",
        "captures",
        "Choose a capture strategy, or leave out the gradient's steps.",
    )


def _part(progress: Progress, low: float, high: float) -> Progress:
    """A progress that fills only a part of another."""
    return lambda fraction, text: progress(low + (high - low) * fraction, text)
