"""Recording by environment variables alone.

RELASCOPE_RECORD names the file, RELASCOPE_RECORD_LEVEL what to keep of each pass. A process that
imports relascope with these set records the TVM that it imports, before or later."""

import os
import sys
from pathlib import Path

from relascope.recorder.writing import sibling

FILE, LEVEL, FRONT = "RELASCOPE_RECORD", "RELASCOPE_RECORD_LEVEL", "RELASCOPE_RECORD_FRONT"


def variables(path: Path, level: str, python_path: str) -> dict[str, str]:
    """The variables that make a program, and those that it starts, record to the file `path`;
    `python_path` is the present PYTHONPATH."""
    paths = os.pathsep.join(filter(None, (str(Path(__file__).parent / "start"), python_path)))
    front = str(Path(str(sys.modules["relascope"].__file__)).absolute())
    return {FILE: str(path.absolute()), LEVEL: level, FRONT: front, "PYTHONPATH": paths}


def files(path: Path) -> list[Path]:
    """The file of a recording, and those that other processes of the program wrote beside it."""
    beside = [p for p in path.parent.glob(sibling(path, "*").name) if _process(p, path).isdigit()]
    return [p for p in (path, *sorted(beside)) if p.exists()]


def _process(beside: Path, path: Path) -> str:
    return beside.name.removeprefix(f"{path.stem}.").removesuffix(path.suffix)
