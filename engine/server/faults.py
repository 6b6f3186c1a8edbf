"""Pieces of programs in which passes go wrong, and reports on them."""

from dataclasses import replace

from relascope.core.errors import EngineError
from relascope.core.memo import Memo
from relascope.engine.building.devices import torch_device
from relascope.engine.building.options import Function
from relascope.engine.faults import narrow, report
from relascope.engine.faults import recorded as by_record
from relascope.engine.faults.files import piece_files
from relascope.engine.faults.narrow import Start, Values
from relascope.engine.limits import limited
from relascope.engine.measure.compare import values_for
from relascope.engine.measure.intermediates import Intermediates, values_inside
from relascope.engine.protocol.fault import (
    Account,
    ModuleFiles,
    PieceResult,
    Report,
    Suspects,
    Suspicion,
)
from relascope.engine.protocol.session import Progress, part, silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.server.programs import Programs, masks_for
from relascope.engine.server.steps import passes_of
from relascope.engine.server.unbuilt import check_runs_here
from relascope.passes.catalogue import recorded as recorded_pass
from relascope.passes.search.reduce import Piece


class Faults:
    """Narrows a fault to nodes; methods as in `Programs`."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._starts: Memo[Start] = Memo(1)

    def suspects(self, source: ModelSource, where: Suspicion, *, progress: Progress) -> Suspects:
        """The program before suspected passes, and the nodes where values first differ after them,
        if they make it wrong."""
        start = self._start(source, where, part(progress, 0.0, 0.5))
        if where.kind != "wrong" or where.tail:
            return Suspects(start.graph, ())
        upto = where.pipeline.upto(where.last)
        after = self._programs.end(source, upto, part(progress, 0.5, 0.8))
        progress(0.8, "looking for the first values that differ")
        with limited("Building the program after the passes", "suspects", "engine", where):
            later = self._recorded(source, after.function, where.target)
        return narrow.suspects(start, after.base, later)

    def narrow(
        self,
        source: ModelSource,
        where: Suspicion,
        piece: Piece,
        bare: bool = False,
        *,
        progress: Progress,
    ) -> PieceResult:
        """What the suspected passes do to a piece of the program before them; a failure is also an
        answer, unless the process ends."""
        start = self._start(source, where, part(progress, 0.0, 0.5))
        progress(0.5, f"looking at {len(piece.nodes)} of {len(start.graph)} nodes")
        about = source, where, piece, bare
        with limited("A piece of the program, and the passes on it,", "narrow", "engine", about):
            looked = narrow.look if start.after is None else by_record.look
            for _ in range(where.runs):
                shown = looked(start, piece, bare)
                if shown.outcome != "good":
                    break
            return shown

    def written_piece(
        self, source: ModelSource, where: Suspicion, piece: Piece, *, progress: Progress
    ) -> dict[str, ModuleFiles]:
        """A piece as files: "before" the suspected passes, and "module" after them. Raises
        EngineError where the piece cannot be cut out, or a pass fails on it."""
        start = self._start(source, where, part(progress, 0.0, 0.5))
        progress(0.5, f"writing {len(piece.nodes)} of {len(start.graph)} nodes")
        about = source, where, piece
        with limited("Passes on a piece of the program", "written_piece", "pass", about):
            try:
                return piece_files(start, piece)
            except narrow.Refusal as refusal:
                raise refusal.error from refusal
            except (Exception, SystemExit) as error:  # whatever a pass, or TVM, raises
                raise narrow.message_of(error) from error

    def report(
        self,
        source: ModelSource,
        where: Suspicion,
        piece: Piece,
        account: Account,
        *,
        progress: Progress,
    ) -> Report:
        """Make a report on such a piece, which runs on its own."""
        start = self._start(source, where, part(progress, 0.0, 0.5))
        progress(0.5, "writing the report")
        return report.report(start, piece, account)

    def _start(self, source: ModelSource, where: Suspicion, progress: Progress) -> Start:
        def make() -> Start:
            before = where.pipeline.upto(where.first - 1)
            state = self._programs.end(source, before, part(progress, 0.0, 0.5))
            program, graph, exprs = state.program, state.base, state.exprs
            steps, tail = passes_of(self._programs.ir, where)
            if state.shown is not None and steps and steps[0][1].looking:
                program = state.shown
                graph, exprs = self._programs.backend.to_graph(program)
            recorded: Values = {}
            if where.building:
                progress(0.5, "recording the values inside the program")
                with limited("Building the program before the passes", "", "engine", where):
                    function = Function(program, "main", graph, exprs)
                    recorded = self._recorded(source, function, where.target)
            # With this least scale, only a difference above `absolute` is over the limit.
            least = where.absolute / where.limit if where.absolute else 0.0
            about = self._programs.backend, where, program, graph, exprs
            made = Start(*about, steps, tail, recorded, least)
            if not any(s.name == recorded_pass.NAME for s, _ in steps):
                return made
            upto = where.pipeline.upto(where.last)
            left = self._programs.end(source, upto, part(progress, 0.6, 0.8))
            later = self._recorded(source, left.function, where.target) if where.building else {}
            found = map(frozenset, narrow.split_by_difference(made, later))
            after = narrow.After(left.program, left.base, left.exprs, later, *found)
            return replace(made, after=after)

        return self._starts.get((source, where), make)

    def _recorded(self, source: ModelSource, function: Function, target: str) -> Values:
        """The values of a program's nodes by their ids, with arguments."""
        check_runs_here(self._programs.backend.target(target))
        model = self._programs.loaded(source, silent).model.on(torch_device(target))
        program = function.program
        masks = masks_for(program, source, model)
        whole = Intermediates(function, masks, {}, program.gradients)
        try:
            inside = values_inside(self._programs.backend, model, whole, target)
        except EngineError:  # it cannot be built so; nodes without a value get a random one
            inside = {}
        given = {**values_for(model, program), **masks}
        named = {n.id: given[n.name] for n in function.graph if n.name in given}
        return {i: t.detach().cpu().numpy() for i, t in {**named, **inside}.items()}
