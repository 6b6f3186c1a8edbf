"""How large the file of a pipeline's steps is, and how soon it is there and seen.

Opened from disk in Chromium, with the network off: to the first picture, and from step to step.
Run with: .venv/bin/python bench/compiles/handing_on.py [MODEL or RECORDING.rsc ...]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from browser import LONG, browsing
from relascope.engine.client import EngineClient
from relascope.engine.jobs.step import step
from relascope.engine.protocol.source import ModelSource
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import default_pipeline
from relascope.recorder.reading import read
from relascope.viz.handed_on.graphs import PLAIN
from relascope.viz.handed_on.recorded import recording_sheet
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.handed_on.steps import steps_of, steps_tab

MOST = {"bert_layer": 2.0, "bert": 20.0}  # megabytes


def measure(browser: object, ir: str, model: str, folder: Path) -> str:
    """One model in one IR: a line of figures."""
    client = EngineClient(ir)
    try:

        def ask(method: str, *arguments: object) -> object:
            return client.call(method, *arguments)

        source, pipeline = ModelSource(model), default_pipeline(ir, False)
        stepped = step(ask, source, pipeline)
        file = Sheet(f"{model}, inference, {ir}", {"pipeline": str(pipeline)})
        steps = list(steps_of(ask, ir, source, stepped))
        begun = time.perf_counter()
        steps_tab(file, steps, PLAIN)
        path = folder / f"{model}-{ir}.html"
        path.write_text(file.html(), encoding="utf-8")
        written = time.perf_counter() - begun
    finally:
        client.close()
    first, walked = opened(browser, path, ".rs[data-ready]", len(steps))
    size, most = path.stat().st_size / 1e6, MOST.get(model)
    bar = "" if most is None else f" of at most {most:g}: {'ok' if size <= most else 'TOO LARGE'}"
    return (
        f"{model} ({ir}), {len(stepped.records)} steps: {size:.2f} MB{bar}; written in "
        f"{written:.1f} s; first picture {first:.2f} s; a step {statistics.median(walked):.3f} s, "
        f"at most {max(walked):.3f} s"
    )


def measure_recording(browser: object, recording: Path, folder: Path) -> str:
    """A recording of a compile: a line of figures."""
    begun = time.perf_counter()
    file = recording_sheet(read(recording))
    path = folder / "recording.html"
    path.write_text(file.html(), encoding="utf-8")
    written = time.perf_counter() - begun
    first, _ = opened(browser, path, ".board[data-step]")
    size = path.stat().st_size / 1e6
    return f"{recording}: {size:.2f} MB; written in {written:.1f} s; first picture {first:.2f} s"


def opened(browser: object, path: Path, drawn: str, count: int = 0) -> tuple[float, list[float]]:
    """Seconds to the first picture, and from each of so many steps to the one before.

    Args:
        drawn: selects what is there once the picture is.
    """
    context = browser.new_context(offline=True)  # type: ignore[attr-defined]
    page = context.new_page()
    begun = time.perf_counter()
    page.goto(path.as_uri())
    page.locator(drawn).wait_for(timeout=LONG)
    first = time.perf_counter() - begun
    walked = []
    for at in range(count - 2, -1, -1):
        begun = time.perf_counter()
        page.keyboard.press(",")
        page.locator(f".board[data-step='{at}']").wait_for(timeout=LONG)
        walked.append(time.perf_counter() - begun)
    context.close()
    return first, walked


def main() -> None:
    """Print a line a model and IR."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*", default=list(MOST))
    models = parser.parse_args().model
    with browsing() as browser, tempfile.TemporaryDirectory(prefix="relascope-") as folder:
        for model in models:
            if model.endswith(".rsc"):
                print(measure_recording(browser, Path(model), Path(folder)), flush=True)
                continue
            for ir in ENGINES:
                print(measure(browser, ir, model, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
