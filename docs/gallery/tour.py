"""The page's tour as one page that needs no server: `python docs/gallery/tour.py -o FILE.html`.

A tab for each stop, with what its card says above what its screen shows.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from relascope.engine.client import EngineClient
from relascope.engine.jobs.accuracy import Tolerance, judged
from relascope.engine.jobs.cut import joint_of
from relascope.engine.jobs.step import step
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import Ask
from relascope.passes.catalogue import read_pipeline
from relascope.viz.handed_on.graphs import PLAIN
from relascope.viz.handed_on.parts import cut_tab, graph_tab, times_tab
from relascope.viz.handed_on.sheet import Sheet, sentence
from relascope.viz.handed_on.steps import steps_of, steps_tab
from relascope.viz.panels.tour import STOPS, Stop
from relascope.viz.rows import tables, timings
from relascope.viz.sessions.results import cut_with
from relascope.viz.sessions.state import pipeline_text


def tour(ask: Ask) -> Sheet:
    """The page; raises what the engine does."""
    file = Sheet("The tour: from a trace to a timing", {"model": "bert_layer", "engine": "Relay"})
    for number, stop in enumerate(STOPS, 1):
        _screen(file, ask, stop)
        tab = file.tabs[-1]
        said = [stop.words, f"On the page, try: {stop.do}"]
        tab |= {"key": f"stop{number}", "title": f"{number}. {stop.title}"}
        tab["sections"][:0] = [sentence(text.replace("*", "")) for text in said]
    return file


def _screen(file: Sheet, ask: Ask, stop: Stop) -> Sheet:
    """Add the tab of what a stop's screen shows."""
    session = stop.session()
    ir, source = session.ir, session.model.source()
    if session.look.tab == "Graph":
        return graph_tab(file, ask("load", source).graph)
    stepped = step(ask, source, read_pipeline(ir, pipeline_text(session)))
    pipeline, at = stepped.pipeline, session.look.step
    request = BuildRequest(source, pipeline, ask("describe").best)
    if at is not None:
        errors = {}
        if stop.choices:
            upto = replace(request, pipeline=pipeline.upto(at))
            found = judged(ask, source, lambda one: replace(upto, source=one), Tolerance())
            errors = {at: {"error": tables.judged_row(found)}}
        return steps_tab(file, steps_of(ask, ir, source, stepped, errors), PLAIN, at + 1)
    cut = cut_with(joint_of(ask, source, pipeline, None), session.cut)
    if session.look.tab == "Compile & time":
        result = ask("time", request.split_at(cut.ids))
        facts = timings.run_facts(source.model, request, ir, session.cut.strategy)
        return times_tab(file, [("", timings.run_document(result, facts))])
    if stop.choices:
        return graph_tab(file, ask("split", source, pipeline, cut.ids).backward)
    return cut_tab(file, cut)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    args = parser.parse_args()
    with EngineClient("relay") as client:
        page = tour(client.call)
    args.output.write_text(page.html(), encoding="utf-8")


if __name__ == "__main__":
    main()
