"""Finding a TVM that has Relay, without loading it."""

import importlib
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from relascope.core.errors import EngineError

SETTING = "RELASCOPE_RELAY_TVM"

WHEEL = "bitblas==0.1.0"
"""This wheel contains a complete TVM 0.17 with Relay; its dependencies are not needed."""

INSTALL = f"{Path(sys.executable).name} -m relascope install-relay"


@dataclass(frozen=True)
class Installation:
    """Where a TVM with Relay lies. `python` is the folder that holds the package `tvm`; `library`
    is its `libtvm.so`, None if TVM finds it itself; `origin` is "bitblas", or the setting."""

    python: Path
    library: Path | None
    origin: str


def installation() -> Installation:
    """Find the TVM with Relay without loading anything. Raises EngineError of kind "engine" when
    there is none for this machine."""
    setting = os.environ.get(SETTING, "").strip()
    if setting:
        return _from_setting(Path(setting).expanduser())
    check_platform()
    spec = importlib.util.find_spec("bitblas")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        message = f"The Relay engine's TVM is not installed: run `{INSTALL}`."
        hint = f"Or set {SETTING} to a folder with a TVM that has Relay."
        raise EngineError("engine", message, sys.prefix, hint)
    root = Path(places[0]) / "3rdparty" / "tvm"
    library = root / "build" / "libtvm.so"
    if not _has_relay(root / "python") or not library.is_file():
        message = "The installed package bitblas has no TVM with Relay."
        hint = f"Run `{INSTALL} --force` to install the release that has one."
        raise EngineError("engine", message, str(root), hint)
    return Installation(root / "python", library, "bitblas")


def check_platform() -> None:
    """Raise EngineError of kind "engine" on a system or processor that the wheel was not built
    for."""
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        needs = "The Relay engine needs Linux on an x86-64 processor"
        message = f"{needs}: the TVM inside bitblas was built for these."
        hint = f"Set {SETTING} to the folder of a TVM that has Relay (0.18 or older)."
        raise EngineError("engine", message, f"{platform.system()} on {platform.machine()}", hint)


def available() -> EngineError | None:
    """Why the Relay engine cannot run here, or None; imports and loads nothing."""
    try:
        installation()
    except EngineError as error:
        return error
    return None


def _from_setting(folder: Path) -> Installation:
    hint = (
        f"Set {SETTING} to the root of a TVM checkout that was built, or to its python folder; "
        "unset it to use the TVM inside bitblas."
    )
    if not folder.is_dir():
        raise EngineError("engine", f"{SETTING} does not name a folder.", str(folder), hint)
    folder = folder.resolve()
    python = next((p for p in (folder / "python", folder) if (p / "tvm").is_dir()), None)
    if python is None:
        message = f"The folder that {SETTING} names has no package tvm."
        raise EngineError("engine", message, str(folder), hint)
    if not _has_relay(python):
        message = f"The TVM that {SETTING} names has no Relay: Apache TVM dropped it after 0.18."
        raise EngineError("engine", message, str(python / "tvm"), hint)
    build = [Path(p) for p in [os.environ.get("TVM_LIBRARY_PATH", "")] if p]
    build += [python.parent / p for p in ("build", "build/Release", "lib")] + [python / "tvm"]
    library = next((b / "libtvm.so" for b in build if (b / "libtvm.so").is_file()), None)
    return Installation(python, library, SETTING)


def _has_relay(python: Path) -> bool:
    return (python / "tvm" / "relay" / "__init__.py").is_file()
