"""Results compared with PyTorch's: of a whole program, and of every node inside it."""

import itertools
from dataclasses import replace

import torch

from relascope.core.errors import EngineError
from relascope.core.memo import Memo
from relascope.engine.building.devices import torch_device
from relascope.engine.measure.compare import errors_of
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
from relascope.engine.protocol.accuracy import Comparison, NodeError
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import Progress, part, silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import BUDGETS, TorchSaved
from relascope.engine.pytorch.baselines.saved import torch_saved
from relascope.engine.pytorch.reference import Reference, run_inside
from relascope.engine.server.builds import Builds
from relascope.engine.server.program_model import ProgramModel, no_pytorch
from relascope.engine.server.programs import Programs, masks_for
from relascope.engine.server.steps import State
from relascope.engine.server.unbuilt import building, check_runs_here


class Numbers:
    """Compares what an engine computes with PyTorch; methods as in `Programs`."""

    def __init__(self, programs: Programs, builds: Builds) -> None:
        self._programs, self._builds = programs, builds
        self._references: Memo[Reference] = Memo(1)
        self._imported_runs: Memo[ImportedRun] = Memo(1)
        self._torch_saved: Memo[TorchSaved] = Memo(16)

    def check(
        self, request: BuildRequest, captures: bool = False, *, progress: Progress
    ) -> tuple[Comparison, ...]:
        """Build and run; compare every output (and gradient) with PyTorch, for each of the
        request's runs. With `captures`, also compare what the forward saves, as far as PyTorch has
        it, as "capture" and the node's id."""
        shares = enumerate(self._programs.anew(request.runs, progress), 1)
        # The number keeps a run's build apart from that of the run before, so it is built again.
        runs = (self._checked(replace(request, runs=n), captures, share) for n, share in shares)
        return tuple(itertools.chain.from_iterable(runs))

    def _checked(
        self, request: BuildRequest, captures: bool, progress: Progress
    ) -> tuple[Comparison, ...]:
        unbuilt, built = self._builds.built(request, part(progress, 0.0, 0.9))
        with building("Running the build", request):
            comparisons = errors_of(built, part(progress, 0.9, 1.0))
        state, split = unbuilt.state, unbuilt.split
        if not captures or split is None:
            return comparisons
        _, saved = built.forward(masks_for(state.program, request.source, built.model))
        values = {i: saved[n] for i, n in zip(split.captures, split.capture_names, strict=True)}
        reference = self._reference(request.source, state, progress)
        return *comparisons, *compare_captures(values, self._results(request, reference))

    def inside(self, request: BuildRequest, *, progress: Progress) -> tuple[NodeError, ...]:
        """Compare the tensors inside what `check` builds with those inside PyTorch's run.

        Every node is kept, so less is fused than in `check`. `engine.measure.intermediates` says
        which nodes have counterparts; others are left out.

        The errors are in graph order; for a split program, forward then backward, by ids of the
        joint graph, and twice for nodes that both compute."""
        source, target = request.source, request.target
        check_runs_here(self._programs.backend.target(target))
        state = self._programs.end(source, request.pipeline, part(progress, 0.0, 0.2))
        if "gradient" in state.done and not state.program.gradients:
            message = "Right after the gradient, the program is let bindings, not a graph of nodes."
            hint = "Look at the next step, which makes it a graph."
            raise EngineError("pass", message, str(request.pipeline), hint)
        model = self._programs.loaded(source, progress).model.on(torch_device(target))
        reference = self._reference(source, state, part(progress, 0.2, 0.3))
        results = self._results(request, reference)
        masks, gradients = masks_for(state.program, source, model), state.program.gradients
        whole = Intermediates(state.function, masks, {}, gradients)
        progress(0.3, "building the program to return every node")
        with building("Building the program to return every node", request):
            values = values_inside(self._programs.backend, model, whole, target)
        if not request.split:
            return compare_inside(whole, values, results, reference, {})
        unbuilt = self._programs.unbuilt(request, progress)
        split = unbuilt.split
        assert split is not None
        saved = dict(zip(split.captures, split.capture_names, strict=True))
        given = {name: values[ident] for ident, name in saved.items() if ident in values}
        found: list[NodeError] = []
        for name, function in unbuilt.functions.items():
            progress(0.5 if name == "forward" else 0.75, f"building the {name} the same way")
            half = Intermediates(function, masks, given, gradients if name == "backward" else ())
            with building(f"Building the {name} to return every node", request):
                inside = values_inside(self._programs.backend, model, half, target)
            if name == "forward":
                given.update((saved[i], value) for i, value in inside.items() if i in saved)
            found += compare_inside(half, inside, results, reference, values)
        return tuple(found)

    def torch_saved(
        self, source: ModelSource, budgets: tuple[float, ...] = BUDGETS[0], *, progress: Progress
    ) -> TorchSaved:
        """Measure what PyTorch keeps for the backward of a model in training."""
        model = self._programs.loaded(source, part(progress, 0.0, 0.3)).model
        if isinstance(model, ProgramModel):
            raise no_pytorch(source, "so PyTorch keeps nothing for it")
        progress(0.3, "asking PyTorch what it keeps")

        def tell(index: int) -> None:
            progress(0.3 + 0.7 * index / len(budgets), f"within a budget of {budgets[index]}")

        inputs, estimated = model.own_inputs(model.inputs), source.gradient == "pytorch"
        about = model.module, inputs, budgets, estimated
        return self._torch_saved.get((source, budgets), lambda: torch_saved(*about, tell))

    def _results(self, request: BuildRequest, reference: Reference) -> Counterparts:
        """PyTorch's results of operators, by node id at the pipeline's end; a node that lost its
        operator keeps its last one."""
        states = self._programs.states(request.source, request.pipeline, silent)
        if isinstance(self._programs.loaded(request.source, silent).model, ProgramModel):
            program = states[-1].program
            run = self._imported_run(request.source, bool(program.gradients))
            ends = bool(program.gradients) or not program.grad_outs
            return run.counterparts(states[-1].base, ends)
        of = self._programs.backend.ordinal
        placed = ((i, of(state.program, e)) for state in states for i, e in state.exprs.items())
        ordinals = {ident: ordinal for ident, ordinal in placed if ordinal is not None}
        return results_in(states[-1].base, ordinals, reference)

    def _reference(self, source: ModelSource, state: State, progress: Progress) -> Reference:
        model = self._programs.loaded(source, progress).model
        gradients = bool(state.program.gradients)
        if isinstance(model, ProgramModel):
            progress(0.0, "running the program as it was imported")
            return self._imported_run(source, gradients).reference
        progress(0.0, "running PyTorch operator by operator")
        return self._references.get((source, gradients), lambda: run_inside(model, gradients))

    def _imported_run(self, source: ModelSource, gradients: bool) -> ImportedRun:
        """The values inside the imported program, run without optimisation."""

        def make() -> ImportedRun:
            state = self._programs.least(source, gradients)
            model = self._programs.loaded(source, silent).model
            assert isinstance(model, ProgramModel)
            backend, program = self._programs.backend, state.program
            exprs = shown_in(backend, state.function)
            values: dict[str, torch.Tensor] = {}
            if exprs:
                shown = backend.with_intermediates(program, "main", list(exprs.values()))
                found = self._programs.runner(source, shown, model.arrays())()
                values = dict(zip(exprs, map(torch.tensor, found), strict=True))
            return ImportedRun(state.base, values, program.gradients)

        return self._imported_runs.get((source, gradients), make)
