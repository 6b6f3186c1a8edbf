"""The processes of an engine: `python -m relascope.engine.worker --ir relay --fd N`.

It imports what takes seconds, once, and forks a process for each sandbox that `engine.process` asks
for on socket N; with no child for some minutes, it ends. A child answers requests on a socket
of its own, one at a time and in order. Its main thread only reads, to notice the app's end at any
time; a thread with a large stack works, because TVM's C++ visitors recurse over the graph.

Requests are pickled `(id, method, payload, crossed, shelf)`, with a payload of pickled `(args,
kwargs)`, the units that crossed a limit, and the shelf of `engine.kept_builds`. Back come, by
`engine.wire`, `("begun", id)`, `("progress", id, fraction, text)`, `("waits", id, for what)` with
"" at the end of it, and `("unit", id, unit or None)`, None where it ends; then `("result", id,
value)`, `("error", id, EngineError)` or, without a session, `("gone", id, EngineError)` and the
end. `("records", id, action, path, text)` asks the app to add records of tuning, which answers
`("records", error or None)`; `("built", id, key, bytes)` to keep a build.
"""

import argparse
import contextlib
import faulthandler
import gc
import importlib
import os
import pickle
import queue
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any, NoReturn

from relascope.core.errors import EngineError
from relascope.engine import sandbox, wire
from relascope.engine.building.explain import explain
from relascope.engine.kept_builds import SHELF
from relascope.engine.limits import WATCHED, Unit
from relascope.engine.protocol import records
from relascope.engine.registry import REGISTRY
from relascope.engine.turns import TURNS, beside
from relascope.passes.catalogue.user import enter_named

_IDLE = 300.0  # s
STACK_BYTES = 1 << 30  # of address space: only what is used takes memory

_Request = tuple[int, str, bytes, dict[Unit, EngineError], str]


def main() -> None:
    """Import what engines do, and fork a process for each sandbox that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m relascope.engine.worker")
    parser.add_argument("--ir", required=True)
    parser.add_argument("--fd", required=True, type=int)
    parser.add_argument("--session", default="", help="module:Class, instead of the IR's own")
    parser.add_argument("--folder", required=True, help="for temporary files")
    options = parser.parse_args()
    os.set_inheritable(options.fd, False)
    session = options.session or REGISTRY[options.ir].session
    _leave_in(options.folder)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its pool may not start here
    _ForkServer(Connection(options.fd), session).serve()


def _leave_in(folder: str, before: str = "") -> None:
    """Make this process and its imports leave files in a folder, in place of the one before."""
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    for name in ("TEST_DATA_ROOT_PATH", "TRITON_HOME"):  # TVM and Triton write at home, else
        os.environ.setdefault(name, folder)
    for name, value in [*os.environ.items()] if before else ():
        if Path(value).is_relative_to(before):  # Inductor's cache, too
            os.environ[name] = str(Path(folder, Path(value).relative_to(before)))


class _ForkServer:
    """Forks engines' processes, tells how they ended, and reaps them when it is asked to."""

    def __init__(self, conn: Connection, session: str) -> None:
        self.conn, self.session = conn, session
        self.children: dict[int, Connection] = {}
        self.ended, self.wake = os.pipe()
        os.set_blocking(self.wake, False)
        signal.set_wakeup_fd(self.wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.imported = _imported(session)

    def serve(self) -> None:
        while ready := wait_for([self.conn, self.ended], None if self.children else _IDLE):
            if self.ended in ready:
                os.read(self.ended, 4096)
                self.tell_ends()
            if self.conn in ready:
                try:
                    message = self.conn.recv()
                except (EOFError, OSError):
                    return
                if isinstance(message, int):
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(message, os.WNOHANG)
                else:
                    self.fork(*message)

    def fork(self, access: sandbox.Access, files: int) -> None:
        handles = [recv_handle(self.conn) for _ in range(files)]
        answers, log, status, *turns = handles
        child = os.fork()
        if not child:
            self.begin(access, *handles)
        for file in (answers, log, *turns):
            os.close(file)
        self.children[child] = Connection(status, readable=False)
        with contextlib.suppress(OSError):  # nobody waits for it any more
            self.children[child].send((child, self.imported))

    def begin(self, access: sandbox.Access, *handles: int) -> NoReturn:
        """Be an engine's process; nothing of the fork server's stays open in it."""
        answers, log, status, *turns = handles
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (self.conn, *self.children.values()):
                other.close()
            for file in (self.ended, self.wake, status):
                os.close(file)
            # Compilers print; the caller's standard output is not theirs.
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            _begin(self.session, access, answers, *turns)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def tell_ends(self) -> None:
        for child in list(self.children):
            if (code := _ended(child)) is not None:
                with contextlib.suppress(OSError):
                    self.children.pop(child).send(code)


def _ended(child: int) -> int | None:
    """The exit status of a process, or minus its signal; None while it runs. It keeps its number
    until it is reaped, except on macOS before Python 3.13."""
    if not hasattr(os, "waitid"):
        ended, status = os.waitpid(child, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return end and (end.si_status if end.si_code == os.CLD_EXITED else -end.si_status)


def _imported(session: str) -> bool:
    """Import a session's module before forking; return whether that was done. Where it fails, or
    forking is not safe, each engine's process imports it itself."""
    if sys.platform != "linux":
        return False
    # TVM asks PyTorch for GPUs when imported. A process forked after CUDA's start cannot use CUDA.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    gc.set_threshold(0)  # torch and TVM are a million objects, and hardly any is garbage
    try:
        importlib.import_module(session.partition(":")[0])
    except BaseException:
        return False
    # The collector then leaves what exists now alone; to write to its pages would copy them.
    gc.freeze()
    return True


def _begin(session: str, access: sandbox.Access, answers: int, turns: int = -1) -> None:
    """Be an engine's process."""
    os.setsid()
    _leave_in(str(access.folder), tempfile.gettempdir())
    sandbox.enter(access)
    os.chdir(access.folder)  # TVM makes a folder in the current one
    # Torch and TVM are a million objects, which would be scanned again and again.
    gc.set_threshold(50_000, 20, 20)
    # Processes that we start (a compiler, a tuner's) must not keep the socket open.
    os.set_inheritable(answers, False)
    TURNS.file = turns
    if TURNS.file >= 0:
        os.set_inheritable(TURNS.file, False)
    conn = Connection(answers)
    requests: queue.Queue[_Request] = queue.Queue()
    worker = _Worker(conn, session, requests)
    _start(worker)
    while True:
        try:
            message = conn.recv()
            (worker.replies if message[0] == "records" else requests).put(message)
        except (EOFError, OSError):  # the parent is gone: end in the middle of whatever is done
            shutil.rmtree(access.folder, ignore_errors=True)
            os.killpg(0, signal.SIGKILL)  # with all that we started
            os._exit(0)


def _start(worker: "_Worker") -> None:
    for size in (STACK_BYTES, STACK_BYTES >> 4, 0):
        threading.stack_size(size)
        try:
            threading.Thread(target=worker.run, name="work", daemon=True).start()
            break
        except RuntimeError:  # address space is limited here
            if not size:
                raise
    threading.stack_size(0)


class _Worker:
    def __init__(self, conn: Connection, session: str, requests: queue.Queue[_Request]) -> None:
        self.conn, self.name, self.requests = conn, session, requests
        self.session: Any = None
        self.replies: queue.Queue[tuple[str, EngineError | None]] = queue.Queue()
        self.sending = threading.Lock()  # a session may report progress from threads of its own

    def run(self) -> None:
        try:
            while True:
                call, method, payload, WATCHED.crossed, SHELF.name = self.requests.get()
                SHELF.hand = partial(self.send, "built", call)
                WATCHED.tell = partial(self.send, "unit", call)
                WATCHED.pause = TURNS.tell = partial(self.send, "waits", call)
                records.KEEPER.ask = partial(self.keep, call)
                with beside():
                    what, value = self.answer(call, method, payload)
                self.send(what, call, value)
                if what == "gone":
                    # A half-done import cannot be repaired here; the next request gets a new
                    # process, where the cause may be gone.
                    os._exit(0)
        except BaseException:
            # The parent waits for an answer that will not come: let it see us go.
            traceback.print_exc()
            os._exit(1)

    def answer(self, call: int, method: str, payload: bytes) -> tuple[str, Any]:
        def progress(fraction: float, text: str) -> None:
            self.send("progress", call, float(fraction), str(text))

        failed = "gone"
        try:
            if self.session is None:
                progress(0.0, "starting the engine")
                enter_named()
                module, _, name = self.name.partition(":")
                self.session = getattr(importlib.import_module(module), name)()
                # TVM's own handler, set when it was imported, prints frames of C alone.
                faulthandler.disable()
                faulthandler.enable()
                gc.freeze()
            failed = "error"
            args, kwargs = pickle.loads(payload)
            self.send("begun", call)
            return "result", getattr(self.session, method)(*args, progress=progress, **kwargs)
        except EngineError as error:
            if error.__cause__ is not None:
                traceback.print_exc()
            return failed, error
        except BaseException as error:  # also SystemExit: a session must not end the process
            explained = explain(error, method)
            if self.session is None:
                explained.hint = "The engine could not start; its log has the details."
            traceback.print_exc()
            sys.stderr.flush()
            return failed, explained

    def keep(self, call: int, action: str, path: str, text: str) -> None:
        """Have the app add records of tuning: an engine may not write there."""
        self.send("records", call, action, path, text)
        _, error = self.replies.get()
        if error is not None:
            raise error

    def send(self, what: str, call: int, *rest: Any) -> None:
        try:
            data = wire.dumps((what, call, *rest))
        except Exception as error:  # pickle raises whatever the object at hand raises
            traceback.print_exc()
            message = f"The engine's answer is not plain data, so it cannot be sent: {error}"
            hint = "This is a fault of the engine; its log has the details."
            fault = EngineError("engine", message, type(rest[0]).__name__, hint)
            data = wire.dumps(("error", call, fault))
        with self.sending:
            self.conn.send_bytes(data)


if __name__ == "__main__":
    main()
