"""Where Python finds this package, so that other processes find the same one."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Raise (kind "usage") where relascope is not tested with this Python."""
    first, last = PYTHONS
    if not first <= sys.version_info[:2] <= last:
        where = f"this is Python {sys.version_info[0]}.{sys.version_info[1]}: {sys.executable}"
        hint = "Create an environment with one of them, and install relascope there."
        raise EngineError("usage", "relascope needs Python 3.10, 3.11 or 3.12.", where, hint)


def user_folder(variable: str, usual: str) -> Path:
    """The user's folder `relascope` in the one that a variable names, or in the usual one in the
    home. Raises RuntimeError if there is neither."""
    named = os.environ.get(variable, "")
    return (Path(named) if os.path.isabs(named) else Path.home() / usual) / "relascope"


def cache_folder() -> Path:
    """The folder of files that can be made again; raises as `user_folder` does."""
    return user_folder("XDG_CACHE_HOME", ".cache")


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def with_import_root(path: str) -> str:
    """A PYTHONPATH that finds this package first, then another one's entries."""
    entries = [IMPORT_ROOT, *path.split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(e for e in entries if e))
