"""relascope: see, step, cut, compile and time TVM graphs of PyTorch models.

Importing this package loads neither torch nor a TVM; what needs them is imported when it is used.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relascope.core.version import __version__
    from relascope.engine.dispatch import add_tvm_dispatch, remove_tvm_dispatch
    from relascope.recorder import Record, recording
    from relascope.recorder.magic import load_ipython_extension
    from relascope.viz.handed_on.notebook import diff, show

__all__ = [
    "Record",
    "__version__",
    "add_tvm_dispatch",
    "diff",
    "load_ipython_extension",
    "recording",
    "remove_tvm_dispatch",
    "show",
]

_here = Path(__file__).parent
if not (_here / "engine").exists():  # in a checkout the other packages stand beside this one
    __path__.append(str(_here.parent))


def __getattr__(name: str) -> Any:
    if name in ("add_tvm_dispatch", "remove_tvm_dispatch"):
        import_module("relascope.core.place").check_python()
        return getattr(import_module("relascope.engine.dispatch"), name)
    if name in ("Record", "recording"):
        return getattr(import_module("relascope.recorder"), name)
    if name == "__version__":
        return import_module("relascope.core.version").__version__
    if name in ("diff", "show"):
        return getattr(import_module("relascope.viz.handed_on.notebook"), name)
    if name == "load_ipython_extension":
        return import_module("relascope.recorder.magic").load_ipython_extension
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if os.environ.get("RELASCOPE_RECORD"):
    import_module("relascope.recorder.begin").begin()
