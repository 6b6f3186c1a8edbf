"""The command line as a process, against an engine without a TVM (page_session.py)."""

import json
import subprocess
import sys

from place import ROOT

FAKE = """
import sys
from relascope.commands import main as cli
from relascope.engine.client import EngineClient
from page_session import session_of
connect = lambda ir: EngineClient(ir, session=session_of(ir))
sys.exit(cli.main(connect=connect))
"""


def run(*args, real=False):
    command = [sys.executable, "cli.py"] if real else [sys.executable, "-c", FAKE]
    return subprocess.run(
        [*command, *args], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def document(*args, real=False, status=0):
    done = run(*args, "--json", real=real)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)  # fails where there is more than one document
