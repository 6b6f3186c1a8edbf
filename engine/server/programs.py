"""Models and what passes make of them: import, step, split, remembered by a call's arguments."""

import io
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relascope.core.errors import EngineError, refusing
from relascope.core.graph import Graph, Kind
from relascope.core.identity import carry_identity
from relascope.core.memo import Memo
from relascope.engine.building.cuda_graphs import GRAPHS
from relascope.engine.building.explain import explain
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.faults import kept
from relascope.engine.faults.files import module_files
from relascope.engine.files.formats import is_program
from relascope.engine.limits import limited
from relascope.engine.measure.compare import values_for
from relascope.engine.protocol.fault import ModuleFiles
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import (
    Application,
    ModelInfo,
    ModelInputs,
    ModuleRow,
    SplitResult,
    StepRecord,
)
from relascope.engine.protocol.session import Progress, part, silent
from relascope.engine.protocol.source import INPUTS, ModelSource, has_name, set_of
from relascope.engine.pytorch import submodules
from relascope.engine.pytorch.inputs.sets import inputs_of
from relascope.engine.pytorch.inputs.tensors import rows_of_trace, tensor_type
from relascope.engine.pytorch.model import Model, Opened, checked_path, guarded, open_model
from relascope.engine.server.backend import Backend, Program
from relascope.engine.server.imported import changes
from relascope.engine.server.program_model import (
    Arrays,
    ProgramModel,
    Run,
    array_of,
    input_words,
    no_pytorch,
    of_run,
    program_model,
)
from relascope.engine.server.steps import (
    Loaded,
    State,
    check_kind,
    check_may_run,
    check_order,
    check_runs,
    check_signature,
    entry_of,
    places_of,
)
from relascope.engine.server.unbuilt import Unbuilt, forward_kernels
from relascope.passes.applications import Applications
from relascope.passes.catalogue import check_gradient, default_pipeline
from relascope.passes.catalogue import recorded as recorded_pass
from relascope.passes.cuts.cut import roles
from relascope.passes.cuts.offload import HOST
from relascope.passes.memory_plan import memory_plan, plan_findings
from relascope.passes.pipeline import Pipeline, Step
from relascope.samples import SAMPLES

MOST_TEXT = 400_000
"""A program's text is cut after so many characters: nobody reads more, and comparing it is slow."""

_STATES, _UNBUILT = 96, 4  # how many are remembered, at least
_OFFERED, _SECONDS_TO_OFFER = 3, 3.0  # submodules of a refused model


class Programs:
    """One engine's programs. Methods with `progress` answer the app; all may raise EngineError."""

    def __init__(self, backend: Backend) -> None:
        self.ir, self.backend = backend.ir, backend
        self._opened: Memo[Opened] = Memo(1)
        self._loaded: Memo[Loaded] = Memo(3)
        self._sets: Memo[tuple[torch.Tensor, ...]] = Memo(8)
        self._states: Memo[State] = Memo(_STATES)
        self._unbuilt: Memo[Unbuilt] = Memo(_UNBUILT)
        self._offered: Memo[tuple[str, ...]] = Memo(_STATES)

    def load(self, source: ModelSource, judged: bool = False, *, progress: Progress) -> ModelInfo:
        """Trace or read the model, import it, and return its graph; with `judged`, also what judges
        a program that came without PyTorch."""
        loaded = self.loaded(source, progress)
        model, program = loaded.model, loaded.state.program
        types = {n.name: n.outputs[0] for n in loaded.state.graph if n.name and n.outputs}
        arguments = tuple((n, types[n]) for n in (*program.inputs, *program.params) if n in types)
        about = source, loaded.state.graph, model.parameter_elements, arguments
        said = model.notes, model.calls, loaded.changes, model.meant
        found = ModelInfo(*about, len(program.inputs), loaded.seconds, *said)
        if isinstance(model, ProgramModel):
            found = replace(found, branches=model.imported.branches)
        if not judged:
            return found
        return replace(found, against=model.against, unjudged=model.unjudged)

    def modules(self, source: ModelSource, *, progress: Progress) -> tuple[ModuleRow, ...]:
        """Every module of the whole model, from one run without an import."""
        progress(0.0, "running the whole model once")
        if _is_program(source):
            raise no_pytorch(source, "has no modules")
        with guarded(source):
            return submodules.module_rows(self.opened(source, progress), source)

    def inputs(self, source: ModelSource, *, progress: Progress) -> ModelInputs:
        """The inputs of a file's model, without an import. Raises EngineError as
        `engine.pytorch.model.open_model` does; of kind "usage" for a sample."""
        if _is_program(source):
            return input_words(self.loaded(source, progress).model)
        with guarded(source):
            given = self.opened(source, progress).given
        if given is None:
            raise EngineError("usage", "A sample brings its own inputs.", source.model)
        return given

    def step(
        self, source: ModelSource, pipeline: Pipeline, runs: int = 1, *, progress: Progress
    ) -> tuple[StepRecord, ...]:
        """Run the pipeline over the imported program, and return one record per step: those of a
        run in which a step failed, else of the last, with all `runs`' most seconds and bytes."""
        most: tuple[StepRecord, ...] = ()
        for share in self.anew(runs, progress):
            states = self.states(source, pipeline, share)[1:]
            records = tuple(s.record for s in states if s.record is not None)
            most = tuple(
                replace(
                    new,
                    seconds=max(new.seconds, old.seconds),
                    kept_bytes=max(new.kept_bytes, old.kept_bytes),
                )
                for new, old in zip(records, most or records, strict=True)
            )
            if any(r.error for r in most):
                break
        return most

    def anew(self, runs: int, progress: Progress) -> Iterator[Progress]:
        """The progress of each of several runs; all but the first forget earlier steps."""
        for run in range(runs):
            if run:
                self._states, self._unbuilt = Memo(_STATES), Memo(_UNBUILT)
            yield part(progress, run / runs, (run + 1) / runs)

    def graph_after(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        index: int,
        built: bool = False,
        *,
        progress: Progress,
    ) -> Graph:
        """The graph after step `index` of the pipeline; -1 is the imported program. After the
        gradient it is a joint graph: `forward_outputs` is set, and roles are those of the cut that
        keeps everything that crosses. If `built`, it is the graph to build there, without the
        passes for inspection; that raises if a step failed."""
        if built:
            return self.end(source, pipeline.upto(index), progress).base
        return self.state(source, pipeline.upto(index), progress).graph

    def applications(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> tuple[Application, ...]:
        return self.state(source, pipeline.upto(index), progress).applications

    def verify(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> tuple[str, ...]:
        """What is wrong with the program after step `index` (-1 is the import) apart from its
        numbers, a sentence each: from `core.graph.Graph.validate`, the memory plan, and `problems`
        of the IR's `ir.inspection`."""
        state = self.state(source, pipeline.upto(index), progress)
        found: list[str] = []
        try:
            state.graph.validate()
        except ValueError as wrong:
            found.append(f"its graph is malformed: {wrong}")
        if (plan := memory_plan(state.graph)) is not None:
            found += plan_findings(plan, state.graph)
        program = state.program if state.shown is None else state.shown
        return (*found, *self.backend.problems(program))

    def program_after(
        self, source: ModelSource, pipeline: Pipeline, shown: bool = False
    ) -> Program:
        """The engine's own program at the pipeline's end, for a script in the same process. Raises
        EngineError where the model cannot be imported, or a step failed."""
        state = self.end(source, pipeline, silent)
        return state.program if not shown or state.shown is None else state.shown

    def text(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> str:
        """The IR's text after step `index` (-1 is the import), without values of constants; a very
        long one is cut, and says so at the end."""
        state = self.state(source, pipeline.upto(index), progress)
        text = self.backend.text(state.program if state.shown is None else state.shown)
        if len(text) <= MOST_TEXT:
            return text
        lines = text[:MOST_TEXT].splitlines()[:-1]
        more = text.count("\n") - len(lines)
        return "\n".join([*lines, f"… {more} more lines"]) + "\n"

    def written(
        self, source: ModelSource, pipeline: Pipeline, run: int = 0, *, progress: Progress
    ) -> ModuleFiles:
        """The program at the pipeline's end, or what its passes for inspection show, as files:
        "module", or "before" without steps. A `run` other than 0 runs the passes again. Raises
        EngineError if a step failed, or the values are too large to send."""
        if run:
            self._states, self._unbuilt = Memo(_STATES), Memo(_UNBUILT)
        state = self.end(source, pipeline, part(progress, 0.0, 0.8))
        program = state.program if state.shown is None else state.shown
        model = self.loaded(source, silent).model
        values = {**values_for(model, program), **masks_for(program, source, model)}
        progress(0.8, "writing the module")
        arrays = {n: array_of(t) for n, t in values.items()}
        return module_files(self.backend, "module" if pipeline.steps else "before", program, arrays)

    def split(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captures: tuple[str, ...],
        *,
        progress: Progress,
    ) -> SplitResult:
        """Split the joint graph at the end of the pipeline; `captures` as in a `BuildRequest`."""
        began = time.perf_counter()
        request = BuildRequest(source, pipeline, "").split_at(captures)
        functions = self.unbuilt(request, progress).functions
        seconds = time.perf_counter() - began
        return SplitResult(functions["forward"].graph, functions["backward"].graph, seconds)

    def kernels(
        self, source: ModelSource, pipeline: Pipeline, whole: bool = False, *, progress: Progress
    ) -> tuple[tuple[str, ...], ...] | None:
        """The nodes of the forward alone, by id, that TVM's FuseOps makes one kernel each; they
        decide what recomputing costs (`passes.cost`). Needs the gradient. None where fusion cannot
        be followed. If `whole`, those of the whole program, with or without a gradient."""
        state = self.end(source, pipeline, progress)
        if not whole and not state.program.gradients:
            raise _no_gradient(pipeline)
        progress(0.9, "fusing")
        if whole:
            return self.backend.kernels(state.function)
        return forward_kernels(self.backend, state.program, state.base, state.exprs)

    def opened(self, source: ModelSource, progress: Progress) -> Opened:
        """The whole model of a source, as PyTorch has it."""
        whole = replace(sampled(source), module="", call=1, gradient="tvm")
        return self._opened.get(whole, lambda: open_model(whole, progress))

    def loaded(self, source: ModelSource, progress: Progress) -> Loaded:
        if source != sampled(source):
            loaded = self.loaded(sampled(source), progress)
            if set_of(source.values):
                inputs = self._set(source, loaded.model)
            else:
                inputs = self._sets.get(source, lambda: _drawn(source, loaded))
            return replace(loaded, model=replace(loaded.model, inputs=inputs))

        def make() -> Loaded:
            try:
                return opened()
            except EngineError as error:
                tried = partial(self._that_open, source, error.instead or (), progress)
                error.instead = self._offered.get(source, tried)
                raise

        def opened() -> Loaded:
            began = time.perf_counter()
            if source.training:
                hint = "Choose TVM's gradient, or the engine Relax."
                with refusing("usage", "{}.", "gradient", hint):
                    check_gradient(self.ir, source.gradient)
            first = part(progress, 0.0, 0.5)
            model: Model
            if _is_program(source):
                with guarded(source):
                    imported = self.backend.read_program(checked_path(source), source, first)
                    model = program_model(imported, source, partial(self._plain, source))
                program = imported.program
            else:
                model, program = self._imported(source, first, part(progress, 0.5, 0.9))
            progress(0.9, "drawing the graph")
            graph, exprs = self.backend.to_graph(program)
            if graph.forward_outputs is not None:  # imported with its gradient
                graph = graph.with_roles(roles(graph))
            state = State(program, graph, graph, exprs)
            whole = isinstance(model, ProgramModel)  # nothing was converted
            did = () if whole else changes(self.backend, model, program, graph, exprs)
            return Loaded(model, state, time.perf_counter() - began, did)

        return self._loaded.get(source, make)

    def _imported(
        self, source: ModelSource, loading: Progress, importing: Progress
    ) -> tuple[Model, Program]:
        model = submodules.load(source, loading, lambda: self.opened(source, loading))
        with model.flat.naming_parts(model.module):
            return model, self.backend.import_model(model, importing)

    def _that_open(
        self, source: ModelSource, paths: Sequence[str], progress: Progress
    ) -> tuple[str, ...]:
        """The first submodules at `paths` in the source's module, or their parts, that import
        alone."""
        inside = f"{source.module}." if source.module else ""
        rest, found = deque(inside + path for path in paths), list[str]()
        until = time.perf_counter() + _SECONDS_TO_OFFER
        while rest and len(found) < _OFFERED and time.perf_counter() < until:
            path = rest.popleft()
            progress(0.9, f"trying {path} alone")
            try:
                self._imported(replace(source, module=path, call=1), silent, silent)
            except Exception as error:  # it may raise anything, and is not offered
                rest += (f"{path}.{p}" for p in getattr(error, "instead", None) or ())
            else:
                found.append(path)
        return tuple(found)

    def _set(self, source: ModelSource, first: Model) -> tuple[torch.Tensor, ...]:
        """The inputs of a saved set, which must have the types of the first."""
        number, sets = set_of(source.values), source.tensors
        if number > len(sets):
            message = f"There is no {source.values}: {len(sets)} sets of inputs are saved."
            raise EngineError("usage", message, source.values, "Add a file of tensors.")
        other = replace(sampled(source), tensors=(sets[number - 1], *sets[1:]))

        def make() -> tuple[torch.Tensor, ...]:
            found = submodules.load(other, silent, lambda: self.opened(other, silent)).inputs
            for name, one, like in zip(first.input_names, found, first.inputs, strict=True):
                if one.shape != like.shape or one.dtype != like.dtype:
                    file, here = sets[number - 1][0].rpartition("/")[2], tensor_type(one)
                    message = f"{name} is {here} in {file}, and {tensor_type(like)} in the first "
                    hint = "One program runs all sets: open this one alone."
                    raise EngineError("input", f"{message}set.", file, hint)
            return found

        return self._sets.get(other, make)

    def _plain(
        self, source: ModelSource, gradients: bool, arrays: Arrays
    ) -> tuple[Run, tuple[str, ...]]:
        """The imported program without optimisation; in training, after the passes of `least`."""
        program = self.least(source, gradients).program
        return self.runner(source, program, arrays), program.gradients

    def least(self, source: ModelSource, gradients: bool) -> State:
        """The imported program; in training, after the passes that every gradient needs."""
        whole = default_pipeline(self.ir, True) if source.training else Pipeline()
        steps = tuple(s for s in whole if entry_of(self.ir, s).required)
        names = [s.name for s in steps]
        if source.training and not gradients:
            steps = steps[: names.index("root_grad_out")]
        return self.end(source, Pipeline(steps), silent)

    def runner(self, source: ModelSource, program: Program, arrays: Arrays) -> Run:
        check_runs(program, source)
        model = self.loaded(source, silent).model
        masks = draw_masks(program.masks, source.seed)
        grad_outs = model.grad_outs() if program.grad_outs else ()
        given = dict(zip(program.grad_outs, grad_outs, strict=True))
        drawn = {n: t.numpy() for n, t in {**masks, **given}.items()}
        run = self.backend.replay.runner(program.mod, {**arrays, **drawn}, "llvm", False)

        def once() -> list[np.ndarray]:
            run()
            return run.results()

        return once

    def states(self, source: ModelSource, pipeline: Pipeline, progress: Progress) -> list[State]:
        return [*self._states_from(0, sampled(source), pipeline, progress)]

    def state(self, source: ModelSource, pipeline: Pipeline, progress: Progress) -> State:
        """The state at the end of the pipeline, computed from the last remembered step on."""
        source = sampled(source)
        steps = reversed(range(len(pipeline)))
        first = next((i for i in steps if (source, pipeline.upto(i)) in self._states), 0)
        *_, last = self._states_from(first, source, pipeline, progress)
        return last

    def _states_from(
        self, first: int, source: ModelSource, pipeline: Pipeline, progress: Progress
    ) -> Iterator[State]:
        """The imported state, and those after the steps from `first` on, which is 0 or follows a
        remembered one."""
        # Room for all of a long pipeline, else asking step by step would run them all each time.
        self._states.size = max(_STATES, len(pipeline) + 1)
        state = self.loaded(source, part(progress, 0.0, 0.5)).state
        yield state
        for index, step in enumerate(pipeline.steps[first:], first):
            progress(0.5 + 0.5 * index / len(pipeline), step.name)
            unit = source, pipeline.upto(index)
            state = self._states.get(unit, partial(self._step, state, step, unit))
            yield state

    def _step(self, before: State, step: Step, unit: tuple[ModelSource, Pipeline]) -> State:
        entry = entry_of(self.ir, step)
        if not entry.looking:
            before = replace(before, graph=before.base, shown=None)
        if not step.enabled:
            return self._unchanged(before, step)
        try:
            check_order(entry, before.done, bool(before.program.gradients), unit[0].training)
            with refusing("usage", "{}.", str(step), "Change it, or leave it out."):
                entry.arguments(step)
                counted = Applications(entry.count(step))
        except EngineError as error:
            return self._unchanged(before, step, error=error)
        memory, printed, message = kept.since(), io.StringIO(), ""
        began = time.perf_counter()
        start = before.program if before.shown is None else before.shown
        failure: EngineError | None = None
        try:
            with limited(entry.title, entry.title, "pass", unit), redirect_stdout(printed):
                if step.name == recorded_pass.NAME:
                    program = self._recorded_module(unit[0], step, start)
                else:
                    check_may_run(start, unit[0])
                    program = entry.applied_and_counted(start, step, counted)
            seconds, stayed = time.perf_counter() - began, memory()
            check_kind(entry.title, start, program)
            # A user's pass may have changed the module in place.
            same = program is start and not (entry.looking or entry.own_file)
            if not same:
                message = f"{entry.title} returned a program that is not well-formed: "
                self.backend.replay.check_formed(program.mod)
                message = ""
                graph, exprs = self.backend.to_graph(program)
                check_signature(entry, (start, before.graph), (program, graph))
        except EngineError as error:
            failure = error
            error.where += _origins_of(error.where, before.graph)
        except (Exception, SystemExit) as error:
            fault = explain(error, "step")
            where = fault.where.replace("step", entry.title, 1)
            at = places_of(before, [counted.at] if counted.at is not None else [])
            hint = " ".join([fault.hint, *(f"It was looking at {a.words}." for a in at)]).strip()
            kind = "type" if message else "pass"
            failure = EngineError(kind, message + fault.message, where, hint)
        places = places_of(before, counted.replaced)
        said = printed.getvalue()[:MOST_TEXT]
        sys.stdout.write(said)
        done = before.done | {step.name}
        if failure is not None:
            seconds = time.perf_counter() - began
            failed = self._unchanged(before, step, seconds, error=failure, printed=said)
            return replace(failed, applications=places)
        if same:
            stayed = max(stayed, 0)
            after = self._unchanged(before, step, seconds, printed=said, kept_bytes=stayed)
            return replace(after, done=done, applications=places)
        stayed = kept.beyond(stayed, before.graph, graph)
        matched = carry_identity(before.graph, graph)
        graph = matched.graph
        if graph.forward_outputs is not None:
            graph = graph.with_roles(roles(graph))
        counts = len(matched.changed), len(matched.added), len(matched.removed), len(graph)
        record = StepRecord(step.name, True, *counts, seconds, graph.operators, None, said, stayed)
        if entry.looking:
            return replace(before, graph=graph, record=record, shown=program, applications=places)
        exprs = {matched.renamed[i]: e for i, e in exprs.items()}
        return State(program, graph, graph, exprs, record, done, applications=places)

    def _recorded_module(self, source: ModelSource, step: Step, start: Program) -> Program:
        """The module that a pass left in a recorded compile, read like any other file."""
        path = Path(source.model).with_name(recorded_pass.file_of(step))
        read: Program = self.backend.read_program(path, source, silent).program
        done = (*start.tvm_passes, entry_of(self.ir, step).title)
        return replace(read, digests=start.digests, tvm_passes=done if read.code else ())

    def _unchanged(self, before: State, step: Step, seconds: float = 0.0, **more: Any) -> State:
        """The state after a step that is off, failed, or found nothing: the program before it.
        `more` are fields of its record."""
        counts, operators = (0, 0, 0, len(before.graph)), before.graph.operators
        record = StepRecord(step.name, step.enabled, *counts, seconds, operators, **more)
        return replace(before, record=record, applications=())

    def end(self, source: ModelSource, pipeline: Pipeline, progress: Progress) -> State:
        """The state at the pipeline's end; raises the error of a failed step."""
        states = self.states(source, pipeline, progress)
        for state in states:
            if state.record is not None and state.record.error is not None:
                raise state.record.error
        return states[-1]

    def unbuilt(self, request: BuildRequest, progress: Progress, done: str = "") -> Unbuilt:
        """What to build: the program at the pipeline's end, and its halves if it is split. With
        `done`, such as "timed", refuses an unsplit joint graph: that is done as two functions."""
        state = self.end(request.source, request.pipeline, progress)
        check_runs(state.program, request.source)
        joint = bool(state.program.gradients)
        if state.program.grad_outs and not joint:
            message = "The pipeline ends between root_grad_out and the gradient: it cannot be run."
            hint = "Go on to the gradient and the steps after it, or stop before root_grad_out."
            raise EngineError("pass", message, str(request.pipeline), hint)
        key = sampled(request.source), request.pipeline
        if not request.split:
            if done and joint:
                message = f"The pipeline ends in a joint graph, which is {done} as two functions."
                hint = "Choose a capture strategy, or leave out the gradient's steps."
                raise EngineError("usage", message, "captures", hint)
            return self._unbuilt.get((key, None), lambda: Unbuilt(self.backend, state, None))
        if not joint:
            raise _no_gradient(request.pipeline)

        on_host = any(i.startswith(HOST) for i in request.captures)
        kind, *how = request.target.split() or [""]
        if on_host and (GRAPHS in how or kind not in ("", "llvm", "c", "cuda")):
            message = "Captures wait on a host for a CPU, or an NVIDIA GPU without CUDA graphs."
            hint = f"Leave out --offload, or {GRAPHS} for an NVIDIA GPU."
            raise EngineError("target", message, request.target, hint)

        def make() -> Unbuilt:
            program, exprs = state.program, state.exprs
            split = self.backend.split(program, state.base, exprs, request.captures)
            return Unbuilt(self.backend, state, split)

        return self._unbuilt.get((key, request.captures), make)


def sampled(source: ModelSource) -> ModelSource:
    return replace(source, values=INPUTS[0], run=())


def _drawn(source: ModelSource, loaded: Loaded) -> tuple[torch.Tensor, ...]:
    """Inputs of the kind and run that a source names. Without PyTorch, integers stay in range,
    because nothing else would notice an index beyond a tensor."""

    def runs(inputs: tuple[torch.Tensor, ...]) -> bool:
        try:
            replace(model, inputs=inputs).forward()
        except Exception:  # whatever PyTorch raises for values that a model refuses
            return False
        return True

    model = loaded.model
    if isinstance(model, ProgramModel):
        inputs = of_run(model, loaded.state.graph, source) if source.run else model.inputs
        if source.values == INPUTS[0]:
            return inputs
        return inputs_of(source.values, inputs, source.seed, model.input_names)
    about = source.values, model.inputs, source.seed, model.input_names
    return inputs_of(*about, rows_of_trace(model.flat), runs)


def masks_for(program: Program, source: ModelSource, model: Model) -> dict[str, Any]:
    """Dropout masks as the model's trace draws them: on the CPU, wherever the model is."""
    masks = draw_masks(program.masks, source.seed)
    return {name: mask.to(model.device) for name, mask in masks.items()}


def _is_program(source: ModelSource) -> bool:
    """Whether a source is a file with a program that came without PyTorch."""
    if source.model in SAMPLES or has_name(source.model):
        return False
    return is_program(checked_path(source))


def _no_gradient(pipeline: Pipeline) -> EngineError:
    message = "The pipeline ends without a gradient, so there is nothing to split."
    hint = "Load the model for training and keep the gradient's steps on."
    return EngineError("pass", message, str(pipeline), hint)


def _origins_of(operator: str, graph: Graph) -> str:
    """The PyTorch operators that a refused one came from, with their lines; "" if unknown."""
    calls = (n for n in graph if n.kind is Kind.CALL and n.op == operator and n.source)
    origins = sorted({n.origin for n in calls})
    more = f" or {len(origins) - 3} others" if len(origins) > 3 else ""
    return f" from {' or '.join(o.where for o in origins[:3])}{more}" if origins else ""
