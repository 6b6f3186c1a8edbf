"""Python runs this first where its folder is on PYTHONPATH: TVM's import begins a recording.

Programs that `relascope record` starts need not have relascope installed: RELASCOPE_RECORD_FRONT
says where to find it, and nothing else is found there."""

import contextlib
import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _Relascope(MetaPathFinder):
    """Finds relascope, and nothing beside it."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != "relascope":
            return None
        front = os.environ["RELASCOPE_RECORD_FRONT"]
        return importlib.util.spec_from_file_location(
            fullname, front, submodule_search_locations=[os.path.dirname(front)]
        )


if os.environ.get("RELASCOPE_RECORD") and os.environ.get("RELASCOPE_RECORD_FRONT"):
    sys.meta_path.append(_Relascope())
    try:
        importlib.import_module("relascope")  # which begins
    except Exception as wrong:  # the program itself must run
        print(f"relascope: nothing is recorded: {wrong}", file=sys.stderr)

# Run the other file of this name that Python would have run.
_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != _HERE]
_OWN = sys.modules.pop("sitecustomize")
with contextlib.suppress(ImportError):
    import sitecustomize  # noqa: F401
sys.modules.setdefault("sitecustomize", _OWN)
