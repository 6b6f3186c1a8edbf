"""A whole session in one file: graph, steps, cut, times, and results of checks and searches."""

from contextlib import suppress
from pathlib import Path

from relascope.core.errors import EngineError
from relascope.engine.files.formats import is_recording
from relascope.engine.jobs.cut import joint_of
from relascope.engine.jobs.step import step
from relascope.engine.protocol.results import PYTORCH, ModelInfo
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import TorchSaved
from relascope.passes.catalogue import read_pipeline
from relascope.passes.cuts.joint import MeasuredPeaks
from relascope.recorder.reading import read
from relascope.viz.drawing.drawing import View
from relascope.viz.handed_on.parts import cut_tab, graph_tab, sheet_of, times_tab
from relascope.viz.handed_on.recorded import LARGEST, recording_sheet
from relascope.viz.handed_on.sheet import Sheet, sentence
from relascope.viz.handed_on.steps import steps_of, steps_tab
from relascope.viz.rows import timings
from relascope.viz.rows.sections import Section, table
from relascope.viz.sessions.results import cut_with, result_sections
from relascope.viz.sessions.state import RESULTS, Session, pipeline_text

_MOST = 1000  # nodes of a model whose page is made at once


def session_sheet(
    ask: Ask, session: Session, source: ModelSource, peaks: MeasuredPeaks | None = None
) -> Sheet:
    """The file of a session whose model or recording is `source` on this machine; missing results
    are requested from the engine, except `peaks` of cuts. Raises EngineError if the model cannot be
    imported, the recording cannot be read, or the call was cancelled."""
    if source.digest and is_recording(path := Path(source.model)):
        return recording_sheet(read(path))
    text = pipeline_text(session)
    pipeline = read_pipeline(session.ir, text)
    info: ModelInfo = ask("load", source)
    name, version = session.model.name, ask("describe").version
    file = sheet_of(source, name, session.ir, version, text, info.notes)
    view = View(fewer_than=session.look.fewer_than)
    graph_tab(file, info.graph, view, info)
    stepped, at = step(ask, source, pipeline), session.look.step
    shown = None if at is None else at + 1
    steps_tab(file, steps_of(ask, session.ir, source, stepped), view, shown)
    if source.training:
        try:
            joint = joint_of(ask, source, stepped.pipeline)
            joint.peaks = peaks or {}
            cut = cut_with(joint, session.cut)
        except EngineError as error:
            said = f"{error.as_finding().message} {error.hint}".strip()
            file.tab("cut", "Gradient & cut", [sentence(said, True)])
        else:
            cut_tab(file, cut, view, _saved(ask, info))
    if session.timings:
        times_tab(file, ((t.title, t.run) for t in reversed(session.timings)))
    if found := _findings(session):
        file.tab("checks", "Checks", found)
    return file


def sheet_at_once(ask: Ask | None, session: Session, source: ModelSource) -> Sheet | None:
    """The same, or None if it takes long or raises; for a recording, `ask` is None."""
    with suppress(EngineError):  # a session's file does not need it, and `replay` reports the error
        if ask is None:
            path = Path(source.model)
            return recording_sheet(read(path)) if path.stat().st_size <= LARGEST else None
        if len(ask("load", source).graph) <= _MOST:
            return session_sheet(ask, session, source)
    return None


def _saved(ask: Ask, info: ModelInfo) -> TorchSaved | None:
    """What PyTorch keeps; None without a PyTorch model, or if it fails."""
    with suppress(EngineError):
        return ask("torch_saved", info.source) if info.against == PYTORCH else None
    return None


def _findings(session: Session) -> list[Section]:
    sections: list[Section] = []
    compared = (session.results.get("errors") or {}).get("comparisons")
    if compared:
        fields = dict.fromkeys(("name", "max_abs", "max_rel", "scale", "dtype"))
        rows = [{**fields, **row} for row in compared]
        sections.append(table("Errors, tensor by tensor", rows, timings.COMPARED))
    for name in RESULTS:
        if (value := session.results.get(name)) is not None:
            sections += result_sections(name, value)
    return sections
