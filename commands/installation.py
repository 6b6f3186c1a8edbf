"""`page`, `engines` and `install-relay`: the installation, and its page."""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from typing import NoReturn

from relascope.commands.options import positive
from relascope.commands.shared import Command, Connect, Document
from relascope.core.errors import EngineError
from relascope.core.place import FOLDERS, with_import_root
from relascope.core.version import __version__
from relascope.engine.limits import CALLS, MEMORY, SECONDS
from relascope.engine.places import MOST
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.registry import ENGINES
from relascope.engine.relay.tvm.find import SETTING, WHEEL, check_platform

TOKEN = "RELASCOPE_TOKEN"  # as `viz.gate` reads it, which imports Streamlit


def served_options(command: argparse.ArgumentParser) -> None:
    """The page's address."""
    about = "port to listen on; default: 8501 or the next free one"
    command.add_argument("--port", type=int, metavar="N", help=about)
    command.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    about = "admit anyone who reaches the port, without the token of the printed link"
    command.add_argument("--no-token", action="store_true", help=about)
    about = "engines to run at once, over all tabs; default: by the machine's memory"
    command.add_argument("--engines", type=positive, metavar="N", help=about)


def relay_options(command: argparse.ArgumentParser) -> None:
    """Options of the installation."""
    about = "reinstall it, for example if it is broken"
    command.add_argument("--force", action="store_true", help=about)


def page(command: Command) -> Document:
    """Open the page in a browser and serve it until Ctrl-C."""
    serve(command.args, {})


def serve(args: argparse.Namespace, more: Mapping[str, str]) -> NoReturn:
    """Become the page's server, with `more` variables; `args` are `served_options` and `limits`."""
    script = next(f for folder in FOLDERS if (f := folder / "viz" / "app.py").is_file())
    command = [sys.executable, "-m", "streamlit", "run", str(script)]
    command += ["--server.port", str(args.port)] if args.port is not None else []
    command += ["--server.headless", "true"] if args.no_browser else []
    path = with_import_root(os.environ.get("PYTHONPATH", ""))
    calls = ",".join(f"{kind}={seconds:g}" for kind, seconds in args.limit_calls.items())
    given = {SECONDS: args.limit_seconds, MEMORY: args.limit_memory, CALLS: calls}
    given[MOST] = args.engines
    given[TOKEN] = "off" if args.no_token else ""
    limits = {name: str(value) for name, value in given.items() if value}
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path, **limits, **more})


def engines(command: Command) -> Document:
    """Which engines are here, and what to do about one that is not: each is started once."""
    return {
        "relascope": __version__,
        "python": platform.python_version(),
        "engines": [_look(ir, command.connect) for ir in ENGINES],
    }


def install_relay(command: Command) -> Document:
    """Install the wheel that carries a TVM with Relay, and load that once.

    The packages that the wheel declares are for other uses of it and stay out: what Relay needs
    came with relascope."""
    check_platform()
    if os.environ.get(SETTING):
        message = f"{SETTING} names another TVM with Relay, which is used before the wheel's."
        raise EngineError("usage", message, os.environ[SETTING], "Unset it, or use that TVM.")
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    pip += ["--force-reinstall"] if command.args.force else []
    done = subprocess.run([*pip, WHEEL], stdout=sys.stderr, check=False)
    if done.returncode:
        message = f"pip could not install {WHEEL}, with exit status {done.returncode}."
        hint = "Its messages are above. Any installer that can leave out the dependencies of "
        raise EngineError("engine", message, sys.prefix, f"{hint}{WHEEL} will do.")
    row = _look("relay", command.connect)
    if row["error"] is not None:
        raise EngineError(**row["error"])
    return {"installed": WHEEL, "engines": [row]}


def _look(ir: str, connect: Connect) -> Document:
    found: Document = {"engine": ir, "version": None, "path": None, "targets": [], "devices": {}}
    found |= {"missing": {}, "sandbox": [], "error": None}
    try:
        with Command(argparse.Namespace(engine=ir), connect) as command:
            info: EngineInfo = command("describe")
    except EngineError as error:
        return found | {"error": error.to_json()}
    devices = {t.name: t.words for t in info.targets if t.runs_here}
    missing = {t.name: t.missing for t in info.targets if not t.runs_here}
    found |= {"targets": list(devices), "devices": devices, "missing": missing}
    return found | {"version": info.version, "path": info.path, "sandbox": list(info.sandbox)}
