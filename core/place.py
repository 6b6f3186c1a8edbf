"""Where Python finds this package, for processes that are to find the same one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE = sys.modules[__name__.partition(".")[0]]

FRONT = Path(str(_PACKAGE.__file__))
"""The package's `__init__.py`."""

FOLDERS = tuple(Path(p) for p in _PACKAGE.__path__)
"""Where its modules and packages are."""

IMPORT_ROOT = str(FRONT.parents[1])


def with_import_root(path: str) -> str:
    """A PYTHONPATH that finds this package, before what another one names."""
    entries = [IMPORT_ROOT, *path.split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(e for e in entries if e))
