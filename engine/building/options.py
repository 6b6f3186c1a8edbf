"""What building has in common for every TVM; each runtime supplies what differs."""

import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from relascope.core.errors import EngineError, lines_of
from relascope.core.graph import Graph
from relascope.core.memo import Memo
from relascope.engine.building import (
    gpu_faults,
    threads,  # sets variables that TVM reads when a build first runs
)
from relascope.engine.building.cpu import cpu_info
from relascope.engine.kept_builds import LARGEST, SHELF
from relascope.engine.protocol import records
from relascope.engine.protocol.results import UNBUILT
from relascope.engine.protocol.session import Progress, silent
from relascope.engine.protocol.tuning import RECORDS
from relascope.passes.catalogue.user import VARIABLE as PASS_FILES


@dataclass(frozen=True)
class TuningRecords:
    """Tuning records to build with. `place` is the target's folder of records, and `stamp` changes
    when they do (`engine.protocol.records.stamp`). `always` takes every record, not only those that
    beat a build without records."""

    place: Path
    stamp: str
    always: bool = False


@dataclass(frozen=True)
class Function:
    """One function of a program. `graph` is its graph, for a half of a split program with the ids
    of the joint graph; `exprs` has the IR's expression of each node by its id."""

    program: Any
    name: str
    graph: Graph
    exprs: Mapping[str, Any]


@dataclass(frozen=True)
class BuildOptions:
    """How to build. `target` is a text; with the library of `engine.<ir>.targets.BLAS`, PyTorch's
    BLAS computes matmuls. `done` are TVM's own passes that made the program, after which only the
    rest of TVM's pipeline runs; None builds in relascope's way. `records` are None if the target
    does not ask for them, or to look for them."""

    target: str = "llvm"
    opt_level: int = 3
    disabled: tuple[str, ...] = ()
    done: tuple[str, ...] | None = None
    records: TuningRecords | None = None

    def with_records(self, ir: str, version: str) -> "BuildOptions":
        """The same with this machine's tuning records, if the target asks for them."""
        if self.records is not None or RECORDS not in self.target.split():
            return self
        place = records.folder(ir, version, self.target, _threads())
        if not (place / records.CURVE).exists():
            return self
        return replace(self, records=TuningRecords(place, records.stamp(place)))


_ERROR = re.compile(r"[A-Z]\w*Error: ")
_LEFT = "cannot emit this Relax operator"


Prepared = Callable[[], Any]

_ANEW = ContextVar("anew", default=False)


LINKED = ContextVar("linked", default=False)
"""Whether the build under way will be linked with PyTorch's library before it runs."""


@contextmanager
def built_anew() -> Iterator[None]:
    """A context in which everything is built anew, and no build is kept."""
    token = _ANEW.set(True)
    try:
        yield
    finally:
        _ANEW.reset(token)


@dataclass
class UnderWay:
    """The build under way, of a function with so many `kernels`, 0 if unknown."""

    progress: Progress = silent
    name: str = "program"
    kernels: int = 0
    _number: int = 0
    _next: float = 0.0

    def begin(self, name: str) -> None:
        """Begin a function; a "main" keeps the name of what it stands for."""
        self.name = self.name if name == "main" else name
        self.kernels, self._number, self._next = 0, 0, 0.0

    def stage(self, words: str = "") -> None:
        self.progress(0.0, f"building the {self.name}{words}")

    def kernel(self, name: str) -> None:
        self._number, now = self._number + 1, time.monotonic()
        if now >= self._next:
            self._next = now + 0.2
            count = f" of {self.kernels}" if self.kernels else ""
            self.stage(f", kernel {self._number}{count}: {name}")


UNDER_WAY = UnderWay()


@dataclass(frozen=True)
class Keeping:
    """How a TVM's builds are kept from process to process (`engine.kept_builds`). `text` gives the
    whole program as text, with its constants; `load` goes from an exported shared object, the
    program and the options to what runs."""

    text: Callable[[Any], str]
    load: Callable[[str, Any, BuildOptions], Any]


class Builder:
    """Builds programs, and remembers builds by a program's structure."""

    def __init__(
        self,
        make: Callable[[Any, BuildOptions], Any],
        structural_hash: Callable[[Any], Any],
        structural_equal: Callable[[Any, Any], Any],
        keeping: Keeping | None = None,
    ) -> None:
        self._make, self._hash, self._equal = make, structural_hash, structural_equal
        self._keeping = keeping
        self._built: Memo[tuple[Any, Any]] = Memo(32)

    def build(
        self,
        program: Any,
        names: tuple[str, ...],
        options: BuildOptions,
        prepared: Prepared | None = None,
        keep: bool = True,
    ) -> Any:
        """The build of a program of this structure, now or from before.

        `program` is a function or a module, whose arguments have `names`, which TVM does not count
        as structure; `prepared` makes the program that `make` is given, if that is another. With
        `keep`, builds are shared with other processes if they are for a CPU and there is a linker.
        Raises EngineError of kind "target", with TVM's reason, if TVM cannot build it, and of kind
        "pass" if an operator is left that no pass lowers."""
        if _ANEW.get():
            return self._try(program, options, prepared)
        key = options, _Structure(program, names, int(self._hash(program)), self._equal)

        make = functools.partial(self._try, program, options, prepared)
        on_disk = keep and SHELF.name and options.target.startswith("llvm") and shutil.which("ld")
        if self._keeping is None or not on_disk:
            return self._built.get(key, lambda: (make(), program))[0]
        given = self._keeping, program, options, names, make
        return self._built.get((True, key), lambda: (_through_disk(*given), program))[0]

    def _try(self, program: Any, options: BuildOptions, prepared: Prepared | None) -> Any:
        UNDER_WAY.stage()
        try:
            return self._make(program if prepared is None else prepared(), options)
        except EngineError:
            raise
        except Exception as error:
            target = options.target
            on_gpu = gpu_faults.gpu_fault(error, target)
            if on_gpu is not None:
                raise on_gpu from error
            message = f"{UNBUILT} for {target}: {_reason(lines_of(error))}"
            hint = "Choose another target, or a smaller part of the model."
            if _LEFT in str(error):
                message = f"No pass lowers an operator that is left: {_reason(lines_of(error))}"
                raise EngineError("pass", message, target, "Run LegalizeOps again.") from error
            raise EngineError("target", message, target, hint) from error


def _through_disk(
    keeping: Keeping, program: Any, options: BuildOptions, names: tuple[str, ...], make: Prepared
) -> Any:
    """The build loaded from disk, or made here, handed over and kept there."""
    text = keeping.text(program)
    if len(text) > LARGEST:
        return make()
    about = repr((_makers(), _threads(), options, names))
    key = hashlib.sha256(f"{about}\0{text}".encode()).hexdigest()
    try:
        on_shelf = SHELF.find(key)
        if file := on_shelf or _BESIDE.get()(key):
            loaded = keeping.load(str(file), program, options)
            SHELF.hand(key, b"" if on_shelf else file.read_bytes())
            SHELF.taken += bool(on_shelf)
            return loaded
    except Exception:  # of TVM's loader: build it anew
        traceback.print_exc()
    token = LINKED.set(True)
    try:
        built = make()
    finally:
        LINKED.reset(token)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "built.so")
            built.export_library(str(file), fcompile=_link)
            # Run it as it will run later; TVM would compile its own build again at the first run.
            loaded = keeping.load(str(file), program, options)
            SHELF.hand(key, file.read_bytes())
        return loaded
    except Exception:  # of the linker or the loader: use TVM's build
        traceback.print_exc()
        return make()


_BESIDE: ContextVar[Callable[[str], Path | None]] = ContextVar("beside", default=lambda key: None)
"""Gives the file of a build by its key, if another process builds it."""
_PATIENCE = 60.0  # s, with a process that builds beside this one
_THREADS = ContextVar("threads", default=0)
"""Threads that a build will run on, if fewer are used to build it."""


def _threads() -> int:
    return _THREADS.get() or torch.get_num_threads()


def both(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
    """The builds of two functions. If builds are kept and there is another processor, a process
    forked from this one builds for the second while the first builds. If that fails, the second
    builds it itself."""
    alone = sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2
    if alone or _ANEW.get() or not SHELF.name:
        return first(), second()
    with tempfile.TemporaryDirectory() as folder:
        process = _Process(second, folder)
        token = _BESIDE.set(process.begin)
        try:
            one = first()
            _BESIDE.set(process.made)
            return one, second()
        finally:
            _BESIDE.reset(token)
            process.end()


class _Process:
    """A process that makes the second build of `both`, and leaves it in a folder by its key."""

    def __init__(self, make: Callable[[], Any], folder: str) -> None:
        self._make, self._folder, self._number, self._began = make, Path(folder), 0, 0.0
        self._words = self._folder / "words"

    def begin(self, key: str) -> None:
        """Fork it, now that this process has something to build."""
        if self._number:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        self._began = time.monotonic()
        self._number = os.fork()
        if not self._number:
            self._build()

    def _build(self) -> NoReturn:
        try:
            # OpenMP would wait for its threads, which a fork leaves behind.
            _THREADS.set(torch.get_num_threads())
            torch.set_num_threads(1)
            threads.TEAM.set_threads(1)
            _BESIDE.set(lambda key: None)
            UNDER_WAY.progress = self._tell
            SHELF.hand = self._leave
            tempfile.tempdir = str(self._folder)  # its files go with the folder
            self._make()
        except BaseException:
            traceback.print_exc()  # the parent builds it
        finally:
            os._exit(1)

    def _tell(self, fraction: float, words: str) -> None:
        self._words.write_text(words)

    def _leave(self, key: str, data: bytes) -> None:
        (self._folder / f"{key}.so").write_bytes(data)
        os._exit(0)

    def made(self, key: str) -> Path | None:
        """The file that it built for this key; waits until it has ended."""
        status, number, words = 0, 0, ""
        # A process that takes longer hangs: its build is made anew.
        until = time.monotonic() + _PATIENCE + 4 * (time.monotonic() - self._began)
        while self._number and not number and time.monotonic() < until:
            time.sleep(0.01)
            if self._words.exists() and (new := self._words.read_text()) not in ("", words):
                UNDER_WAY.progress(0.0, words := new)
            number, status = os.waitpid(self._number, os.WNOHANG)
        if not number:
            return None
        self._number = 0
        file = self._folder / f"{key}.so"
        return file if status == 0 and file.exists() and file.stat().st_size else None

    def end(self) -> None:
        if self._number:
            os.kill(self._number, signal.SIGKILL)
            os.waitpid(self._number, 0)
            self._number = 0


@functools.cache
def _makers() -> str:
    """A hash of everything that generates code: relascope's and TVM's Python, users' passes, the
    libraries in use, this processor."""
    ours = Path(__file__).parents[2]
    named = filter(None, os.environ.get(PASS_FILES, "").split(os.pathsep))
    folders = [*(ours / name for name in ("engine", "passes", "core")), *map(Path, named)]
    theirs = [sys.modules[name].__file__ for name in ("tvm", "tvm_ffi") if name in sys.modules]
    folders += [Path(file).parent for file in theirs if file]
    digest = hashlib.sha256(repr(cpu_info()).encode())
    for folder in folders:
        for file in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            digest.update(f"\0{file}\0".encode() + file.read_bytes())
    for library in _mapped("tvm|LLVM|torch_cpu"):
        about = library.stat()
        digest.update(f"\0{library} {about.st_size} {about.st_mtime_ns}".encode())
    return digest.hexdigest()


def _mapped(pattern: str) -> list[Path]:
    """The shared libraries that this process has loaded, by a pattern in their names."""
    lines = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    files = {Path(fields[5]) for fields in lines if len(fields) == 6}
    return sorted(f for f in files if re.search(pattern, f.name) and ".so" in f.suffixes)


def _link(
    output: str, objects: str | Sequence[str], options: object = None, **more: object
) -> None:
    """Link a shared object, for TVM's export. A missing symbol is an error when it is loaded, not a
    crash in a run; the functions of the C library and PyTorch are those of this process."""
    given = [objects] if isinstance(objects, str) else objects
    how = ["ld", "-shared", "-Bsymbolic", "-z", "now", "-o", output, *given, "--as-needed"]
    # To read PyTorch's library takes the linker longer than all the rest.
    calls_it = any(b"aoti_torch" in Path(file).read_bytes() for file in given)
    known = _mapped(r"^lib([cm]|torch_cpu)\.so" if calls_it else r"^lib[cm]\.so")
    subprocess.run([*how, *known], check=True, capture_output=True)


def _reason(lines: list[str]) -> str:
    at = next((i for i, line in enumerate(lines) if "module verification failed" in line), None)
    if at is None or at + 1 >= len(lines):
        # A module or a graph may follow the error's line.
        return next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1])
    return f"LLVM rejects the code that TVM generated ({lines[at + 1].rstrip('!')})"


class _Structure:
    """A program as a key: equal where TVM finds the programs structurally equal."""

    def __init__(
        self, program: Any, names: tuple[str, ...], hashed: int, equal: Callable[[Any, Any], Any]
    ) -> None:
        self.program, self.names, self.hashed, self.equal = program, names, hashed, equal

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Structure)
            and self.names == other.names
            and bool(self.equal(self.program, other.program))
        )
