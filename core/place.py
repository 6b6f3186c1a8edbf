"""Where Python finds this package, for processes that are to find the same one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from relascope.core.errors import EngineError

_PACKAGE = sys.modules[__name__.partition(".")[0]]

FRONT = Path(str(_PACKAGE.__file__))
"""The package's `__init__.py`."""

FOLDERS = tuple(Path(p) for p in _PACKAGE.__path__)
"""Where its modules and packages are."""

IMPORT_ROOT = str(FRONT.parents[1])

PYTHONS = ((3, 10), (3, 12))


def check_python() -> None:
    """Raise where this Python is not one that relascope is made and tested for.

    Raises:
        EngineError: kind "usage".
    """
    first, last = PYTHONS
    if not first <= sys.version_info[:2] <= last:
        raise EngineError(
            "usage",
            "relascope needs Python 3.10, 3.11 or 3.12.",
            f"this is Python {sys.version_info[0]}.{sys.version_info[1]}: {sys.executable}",
            "Make an environment with one of those, and install relascope there.",
        )


def with_import_root(path: str) -> str:
    """A PYTHONPATH that finds this package, before what another one names."""
    entries = [IMPORT_ROOT, *path.split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(e for e in entries if e))
