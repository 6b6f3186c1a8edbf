"""Environments that have an engine's TVM and what that TVM needs, and nothing of relascope."""

import functools
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from importlib.metadata import files
from pathlib import Path

from answers import answer, ran

NEEDS = {
    "relax": "apache-tvm apache-tvm-ffi ml_dtypes numpy typing_extensions",
    "relay": "bitblas numpy scipy attrs psutil decorator cloudpickle typing_extensions pyelftools "
    "ml_dtypes",
}
_TVM = {
    "relax": "tvm/relax/transform/__init__.py",
    "relay": "bitblas/3rdparty/tvm/python/tvm/__init__.py",
}
_PLANT = (
    "\nimport os, sys\nif os.environ.get('PLANTED'):\n"
    "    exec(compile(open(os.environ['PLANTED']).read(), 'planted', 'exec'), {})\n"
)
"""Ends TVM's `__init__`: a file that `PLANTED` names puts a fault into its passes."""


@functools.cache
def python(ir: str, folder: Path) -> Path:
    """Make an environment of links to the installed packages; its interpreter."""
    place = folder / f"bare_{ir}"
    venv.create(place, symlinks=True)
    here = Path(sysconfig.get_path("purelib"))
    there = next(place.glob("lib/python*/site-packages"))
    for name in NEEDS[ir].split():
        for top in {f.parts[0] for f in files(name) or () if f.parts[0] not in ("..", "bin")}:
            if top != "__pycache__" and not (there / top).exists():
                (there / top).symlink_to(here / top)
    _own(here, there, Path(_TVM[ir]))
    return place / "bin" / "python"


def _own(here: Path, there: Path, file: Path) -> None:
    """Have a file of our own in a tree of links, with a fault planted where one is asked for."""
    for depth in range(1, len(file.parts)):
        part = Path(*file.parts[:depth])
        (there / part).unlink()
        (there / part).mkdir()
        for entry in (here / part).iterdir():
            (there / part / entry.name).symlink_to(entry)
    (there / file).unlink()
    (there / file).write_text((here / file).read_text() + _PLANT)


def importing(ir: str, interpreter: Path) -> dict[str, str]:
    """Variables with which a plain `import tvm` finds an environment's TVM."""
    if ir == "relax":
        return {}
    code = "import json; from relascope.engine.relay.tvm import boot; boot.boot();"
    found: dict[str, str] = answer(f"{code} print(json.dumps(boot.child_environment()))")
    here = next(interpreter.parents[1].glob("lib/python*/site-packages"))
    return found | {"PYTHONPATH": str(here / Path(_TVM[ir]).parents[1])}


def run(
    interpreter: Path,
    report: Path,
    *options: str,
    isolated: bool = False,
    planted: str = "",
    more: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run a report from another folder; its exit status and what it prints. `more` are variables
    beside a few of this process's."""
    command = [str(interpreter), *(["-I"] if isolated else []), str(report / "report.py"), *options]
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LANG")}
    env |= {"PLANTED": planted} if planted else {}
    env |= more or {}
    done = ran(*command, cwd="/", env=env)
    return done.returncode, done.stdout + done.stderr


def command(cli: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a checkout in a process of its own."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return ran(sys.executable, cli, *arguments, env=env, timeout=1800)
