"""`replay`: run a session's file again."""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from relascope.commands import handing_on
from relascope.commands.options import limits, pass_file
from relascope.commands.shared import Command, Document, writing
from relascope.viz.handed_on.session import session_sheet
from relascope.viz.sessions import replay as files
from relascope.viz.sessions.results import again, changes_of
from relascope.viz.sessions.state import pipeline_text


def replay_options(command: argparse.ArgumentParser) -> None:
    """The file, and limits of its passes."""
    about = "a session file, as exported by the page"
    command.add_argument("file", type=Path, metavar="FILE", help=about)
    pass_file(command)
    limits(command)
    about = "also write the session as one page that needs no server (.html), or the file once "
    about += "more with what `relascope viewer` shows of it (.zip)"
    command.add_argument("-o", dest="output", type=Path, metavar="FILE", help=about)


def replay(command: Command) -> Document:
    """Run a session's file again, and compare graphs, captures and errors with those in it."""
    args = command.args
    handing_on.check_ending(args, handing_on.PAGE, handing_on.DATA, handing_on.SESSION)
    with tempfile.TemporaryDirectory(prefix="relascope-") as folder:
        session, path = files.whole(args.file, Path(folder))
        args.engine = session.ir
        version = command("describe").version
        results = again(command, session, path)
        if args.output:
            source = session.model.source(path)
            page = session_sheet(command, session, source)
            if args.output.name.lower().endswith(handing_on.SESSION):
                tensors = [file for file, _ in source.tensors]
                with writing(args.output, "-o"):
                    files.write(args.output, session, path or None, tensors, page.data())
            else:
                handing_on.write_page(args.output, page)
    then = {name: part for name, part in session.results.items() if name in results}
    found = list(changes_of(then, results)) if then else []
    return {
        "file": str(args.file),
        "engine": session.ir,
        "model": session.model.name,
        "pipeline": pipeline_text(session),
        "versions": {"then": session.engines.get(session.ir), "now": version},
        "session": {n: asdict(getattr(session, n)) for n in ("model", "cut", "build")},
        "compared": sorted(then),
        "same": not found,
        "differences": found,
        "results": results,
    }
