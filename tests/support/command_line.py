"""The command line in this process, or as a process; against an engine without a TVM, or real."""

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

from engines import shared, shared_fake
from place import ROOT
from relascope.commands.main import main

Connect = Callable[[str], Any]
FAKE = """
import sys
from relascope.commands import main as cli
from relascope.engine.client import EngineClient
from page_session import session_of
connect = lambda ir: EngineClient(ir, session=session_of(ir))
sys.exit(cli.main(connect=connect))
"""


def run(*args: str, real: bool = False, connect: Connect | None = None) -> CompletedProcess[str]:
    """Against the engine of `connect`, a real one, or else the one without a TVM."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(args, connect or (shared if real else shared_fake))
        except SystemExit as end:  # how argparse leaves
            status = int(end.code or 0)
    return CompletedProcess(args, status, out.getvalue(), err.getvalue())


def page_of(*args: str) -> tuple[list[str], dict[str, str]]:
    """The command that a command becomes, to serve the page, and its environment."""
    with patch("os.execve", side_effect=SystemExit(0)) as execve:
        assert run(*args).returncode == 0
    _, command, environment = execve.call_args.args
    return command, environment


def document(*args: str, status: int = 0, **against: Any) -> Any:
    """The one document that a command prints with --json; `against` is that of `run`."""
    done = run(*args, "--json", **against)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)  # fails where there is more than one document


def on_terminal(*args: str) -> tuple[subprocess.Popen[str], int]:
    """A command that runs as a process, and the terminal that it takes its standard error for."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", FAKE, *args, "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        # Ctrl-C is ignored by whatever a shell runs in the background, tests among it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    return process, ours
