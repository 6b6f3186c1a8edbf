"""Begins the recording that the variables of `relascope.recorder.environment` request."""

import atexit
import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any

from relascope.recorder.environment import FILE, LEVEL


def begin() -> None:
    """Record the TVM of this process, imported already or later."""
    if "tvm" in sys.modules:
        _record()
    elif not any(isinstance(f, _AfterTvm) for f in sys.meta_path):
        sys.meta_path.insert(0, _AfterTvm())


class _AfterTvm(MetaPathFinder):
    """Lets TVM be imported as usual, and then begins the recording."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != "tvm":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            _record()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _record() -> None:
    try:
        from relascope.recorder.record import recording

        held = recording(os.environ[FILE], os.environ.get(LEVEL, "text"), claim=True)
        held.__enter__()  # for as long as the process lives
    except Exception as wrong:  # the program itself must run
        print(f"relascope: nothing is recorded: {wrong}", file=sys.stderr)
        return

    def ended() -> None:
        error = getattr(sys, "last_value", None)  # the one that ended the program
        held.__exit__(type(error) if error else None, error, None)

    atexit.register(ended)
