"""An open recording, with results cached so far."""

from dataclasses import dataclass, replace

from relascope.passes.pipeline import Pipeline
from relascope.recorder.reading import PassRun, Recording
from relascope.viz.compare.changes import Program, around
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.tab_engines import recording_screen
from relascope.viz.rows import Row, packed
from relascope.viz.rows.recording import list_rows, pass_rows, recording_document


@dataclass
class OpenedRecording:
    """A recording on its screen: `pass_rows`, `recording_document` and, `packed`, `list_rows`."""

    screen: Screen
    recording: Recording
    rows: list[Row]
    document: Row
    packed: str

    def around(self, run: PassRun, function: str) -> tuple[Screen, tuple[Program, Program]]:
        """The screen on a function alone, and the programs before and after a pass."""
        assert self.screen.recorded
        of = replace(self.screen, source=replace(self.screen.source, module=function))
        return of, around(of.ir, Pipeline((self.screen.recorded.step_of(run),)), 0)


def read_once(path: str) -> OpenedRecording:
    """The recording in a file, as `recording_screen`."""
    screen = recording_screen(path)
    assert screen.recorded
    recording = screen.recorded.recording

    def make() -> OpenedRecording:
        rows = pass_rows(recording)
        about = rows, recording_document(recording, rows), packed(list_rows(rows), 6)
        return OpenedRecording(screen, recording, *about)

    return screen.cache.derive(make, "opened")
