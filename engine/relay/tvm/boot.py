"""Find a TVM that has Relay, and make `import tvm` mean that one in this process.

Relay left Apache TVM; the wheel `bitblas` has a complete TVM 0.17 with it, built with CUDA. Of the
three CUDA libraries that it needs to load, a stub (`engine.relay.tvm.cuda_stubs`) replaces those
that the machine lacks. `RELASCOPE_RELAY_TVM` names the folder of another TVM instead.
"""

import atexit
import contextlib
import ctypes
import functools
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, lines_of
from relascope.core.place import cache_folder, environment, with_import_root
from relascope.engine.building.cuda_compiler import compile_cuda
from relascope.engine.building.cuda_libraries import places
from relascope.engine.relay.tvm.cuda_stubs import MARKER, Needs, Symbol, read_needs, stub_library
from relascope.engine.relay.tvm.find import INSTALL, SETTING, Installation, installation

_LIBRARY = re.compile(r"lib(cuda|cudart|nvrtc)\.so(\.[\d.]+)?")
_PREFIX = {"cuda": "cu[A-Z]", "cudart": "(__)?cuda[A-Z]", "nvrtc": "nvrtc[A-Z]"}


@dataclass(frozen=True)
class CudaLibrary:
    """One CUDA library that this TVM needs, and what was loaded for it. `name` is its soname, such
    as "libcudart.so.12"; `real` says whether the real library was loaded; `path` is the loaded
    file, or the soname if the system's loader found it; `note` says in a sentence what is wrong, or
    is ""."""

    name: str
    real: bool
    path: str
    note: str = ""


LOADED: list[CudaLibrary] = []
"""The CUDA libraries that the booted TVM runs with; empty if it needs none."""

_booted: Installation | None = None


def boot() -> None:
    """Make `import tvm` give a TVM with Relay in this process. A second call does nothing. Raises
    EngineError of kind "engine" if none can be loaded, or another TVM is imported already."""
    global _booted
    if _booted is not None:
        return
    if "tvm" in sys.modules:
        _accept_imported()
        return
    found = installation()
    needs = _needs(found)
    if needs is not None:
        beside = str(found.library.parent) if found.library is not None else ""
        names = filter(_LIBRARY.fullmatch, needs.libraries)
        # Loaded globally, so that libtvm.so finds each, or its stub, by its name.
        LOADED[:] = [_load_one(n, wanted_of(needs, n), (*needs.search, beside)) for n in names]
    # TVM makes a folder as it is imported: not at home, which may be read-only.
    os.environ.setdefault("TEST_DATA_ROOT_PATH", tempfile.gettempdir())
    # Else TVM would fetch tuned schedules from the network.
    os.environ["TOPHUB_LOCATION"] = "NONE"
    # Relay's Python visitors recurse once and more a node.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))
    sys.path.insert(0, str(found.python))
    try:
        with environment(_library_path(found)):  # another TVM in a child process must not see it
            importlib.import_module("tvm")
            importlib.import_module("tvm.relay")
    except Exception as error:
        sys.path.remove(str(found.python))
        raise _explained(error, found) from error
    _booted = found
    from relascope.engine.relay.tvm.calls import shorten

    shorten()
    _compile_by_ours()
    _read_bfloat16()


def child_environment() -> dict[str, str]:
    """Variables with which a child, as TVM starts when it tunes, imports the same TVM without
    `boot`."""
    if _booted is None:
        return {}
    folders = [str(Path(c.path).parent) for c in LOADED if os.sep in c.path]
    found = {"TOPHUB_LOCATION": "NONE"}
    for name, mine in (("PYTHONPATH", [str(_booted.python)]), ("LD_LIBRARY_PATH", folders)):
        old = [p for p in os.environ.get(name, "").split(os.pathsep) if p]
        merged = list(dict.fromkeys([*mine, *old]))
        if merged:
            found[name] = os.pathsep.join(merged)
    return {**found, **_library_path(_booted)}


@contextlib.contextmanager
def spawning() -> Iterator[None]:
    """While this lasts, Python processes that are started import the same TVM, and this project."""
    found = child_environment()
    with environment({**found, "PYTHONPATH": with_import_root(found.get("PYTHONPATH", ""))}):
        yield


def _library_path(found: Installation) -> dict[str, str]:
    """The variable by which TVM's Python finds its library, if it needs one."""
    if found.origin == "bitblas" and found.library is not None:
        return {"TVM_LIBRARY_PATH": str(found.library.parent)}
    return {k: v for k, v in os.environ.items() if k == "TVM_LIBRARY_PATH"}


def _accept_imported() -> None:
    """Accept a TVM that another part of this process has imported, if it has Relay."""
    import tvm

    if importlib.util.find_spec("tvm.relay") is None:
        message = "A TVM without Relay is already imported, and a process can hold only one TVM."
        hint = "Start the Relay engine before you import tvm, or in another process."
        raise EngineError("engine", message, str(tvm.__file__), hint)


def _needs(found: Installation) -> Needs | None:
    if found.library is None or not sys.platform.startswith("linux"):
        return None
    try:
        return read_needs(found.library)
    except (OSError, ValueError) as error:
        message, hint = "TVM's library cannot be read", "It looks broken: install it again."
        raise EngineError("engine", f"{message}: {error}", str(found.library), hint) from error


def wanted_of(needs: Needs, library: str) -> tuple[Symbol, ...]:
    """The symbols that an object wants of one CUDA library; unversioned ones, the driver's, by
    prefix."""
    match = _LIBRARY.fullmatch(library)
    prefix = re.compile(_PREFIX[match[1]]) if match else None

    def is_its(symbol: Symbol) -> bool:
        if symbol.library or prefix is None:
            return symbol.library == library
        return prefix.match(symbol.name) is not None

    return tuple(filter(is_its, needs.wanted))


def _load_one(name: str, wanted: tuple[Symbol, ...], search: tuple[str, ...]) -> CudaLibrary:
    broken = ""
    for place in places(name, search):
        try:
            real = ctypes.CDLL(place, ctypes.RTLD_GLOBAL)
        except OSError as error:
            if os.sep in place:
                broken = f"{place} exists but cannot be loaded ({error})."
            continue
        lacking = tuple(s for s in wanted if not hasattr(real, s.name))
        if not lacking:  # it may be a stub that this process has loaded before
            return CudaLibrary(name, not hasattr(real, MARKER), place)
        # The loader looks for symbols in all libraries, so a stub under another name can supply
        # what an old library lacks.
        _load_stub(f"{name}.relascope", lacking)
        what = f"{len(lacking)} of the functions that TVM calls, such as {lacking[0].name}"
        note = f"{place} is too old for this TVM: it lacks {what}. Update it to use the GPU."
        return CudaLibrary(name, True, place, note)
    return CudaLibrary(name, False, _load_stub(name, wanted), note=broken)


def _load_stub(name: str, wanted: tuple[Symbol, ...]) -> str:
    content = stub_library(name, wanted)
    failures = []
    for folder in _stub_folders(hashlib.sha256(content).hexdigest()[:16]):
        path = folder / name
        try:
            _write_whole(path, content)
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        except OSError as error:  # not writable, full, or mounted without the right to execute
            failures.append(str(error))
            continue
        return str(path)
    message = f"This machine lacks {name}, and a stub for it could not be written and loaded."
    hint = "Set XDG_CACHE_HOME or TMPDIR to a folder where files may be written and executed."
    raise EngineError("engine", message, "; ".join(failures), hint)


def _stub_folders(digest: str) -> Iterator[Path]:
    with contextlib.suppress(RuntimeError):  # a user without a home
        yield cache_folder() / "stubs" / digest
    # Only we may write there, so nobody can put another library in our way.
    folder = tempfile.mkdtemp(prefix="relascope-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    yield Path(folder) / digest


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file so that others see all of it or nothing, also when several of us write it."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _compile_by_ours() -> None:
    """Compile CUDA source by `engine.building.cuda_compiler`."""
    import tvm

    @functools.partial(tvm.register_func, "tvm_callback_cuda_compile", override=True)
    def compiled(source: str, *target: Any) -> bytearray:
        chosen = target[0] if target else tvm.target.Target.current()
        return bytearray(compile_cuda(source, str(chosen.attrs["arch"]), "cubin"))


def _read_bfloat16() -> None:
    """Read bfloat16 arrays as bfloat16; TVM reads their bits."""
    import tvm

    theirs = tvm.nd.NDArray.numpy

    def numpy(array: Any) -> Any:
        made = theirs(array)
        return made.view("bfloat16") if array.dtype == "bfloat16" else made

    tvm.nd.NDArray.numpy = numpy


def _explained(error: Exception, found: Installation) -> EngineError:
    message = f"TVM could not be loaded: {lines_of(error)[-1]}"
    if isinstance(error, ModuleNotFoundError):
        hint = f"Install the Python package {error.name}, which requirements.txt lists."
    elif isinstance(error, OSError):
        hint = "Install the library that the message names (Debian: zlib1g, libtinfo6, libstdc++6)."
    elif found.origin == SETTING:
        hint = f"Check that Python imports the TVM that {SETTING} names."
    else:
        hint = f"Its installation looks broken: run `{INSTALL} --force`."
    return EngineError("engine", message, str(found.python), hint)


@functools.cache
def cuda_missing() -> str:
    """Why the booted TVM's libraries cannot drive a GPU, or "". nvrtc may be missing, because
    relascope compiles for it."""
    stubs = [c.name for c in LOADED if not c.real and not c.name.startswith("libnvrtc")]
    notes = " ".join(c.note for c in LOADED if c.note)
    if not stubs:
        return notes
    if "libcuda.so.1" in stubs:
        return f"There is no NVIDIA driver on this machine. {notes}".strip()
    packages = {"libcudart.so.12": "cuda-runtime"}
    named = [f"nvidia-{packages[s]}-cu12" for s in stubs if s in packages]
    advice = f" Run `pip install {' '.join(named)}`." if named else ""
    text = f"The NVIDIA driver is installed, but not {' and '.join(stubs)}, which this TVM needs."
    return f"{text}{advice} {notes}".strip()
