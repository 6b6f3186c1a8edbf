"""Python runs this first in what `relascope record` starts: TVM's import begins the recording."""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import os
import sys
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _ended(held: Any) -> None:
    """With what ended the program, where that is an error."""
    error = getattr(sys, "last_value", None)
    held.__exit__(type(error) if error else None, error, None)


class _AfterTvm(MetaPathFinder):
    """Lets TVM be imported as always, and then begins the recording."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname != "tvm":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            from relascope.recorder import recording

            held = recording(os.environ["RELASCOPE_RECORD"], os.environ["RELASCOPE_RECORD_LEVEL"])
            held.__enter__()  # for as long as the process lives
            atexit.register(_ended, held)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.pop("RELASCOPE_RECORD_PROCESS", ""):  # not in what that starts in its turn
    sys.meta_path.insert(0, _AfterTvm())
# Another file of this name, which Python would have run.
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != _HERE]
_OWN = sys.modules.pop("sitecustomize")
with contextlib.suppress(ImportError):
    import sitecustomize  # noqa: F401
sys.modules.setdefault("sitecustomize", _OWN)
