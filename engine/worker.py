"""The child process of an engine: `python -m relascope.engine.worker --ir relay --fd N`.

It answers requests on the socket N of `engine.process`, one at a time and in order. The main thread
only reads, to notice the parent's end at any time; a thread with a large stack works, because TVM's
C++ visitors recurse over the graph.

Requests are pickled `(id, method, payload, crossed, shelf)`, with a payload of pickled `(args,
kwargs)`, the units that crossed a limit, and the shelf of `engine.kept_builds`. Back come, by
`engine.wire`, `("begun", id)`, `("progress", id, fraction, text)`, `("waits", id, for what)` with
"" at the end of it, and `("unit", id, unit or None)`, None where it ends; then `("result", id,
value)`, `("error", id, EngineError)` or, without a session, `("gone", id, EngineError)` and the
end. `("records", id, action, path, text)` asks the app to add records of tuning, which answers
`("records", error or None)`; `("built", id, key, bytes)` to keep a build.
"""

import argparse
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

STACK_BYTES = 1 << 30  # of address space: only what is used takes memory

_Request = tuple[int, str, bytes, dict[Unit, EngineError], str]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m relascope.engine.worker")
    parser.add_argument("--ir", required=True)
    parser.add_argument("--fd", required=True, type=int)
    parser.add_argument("--session", default="", help="module:Class, instead of the IR's own")
    parser.add_argument("--turns", type=int, default=-1, help="the file of `engine.turns`")
    parser.add_argument("--folder", default="", help="of its own, for what it leaves")
    parser.add_argument("--writes", action="append", default=[], help="another to write to")
    parser.add_argument("--reads", action="append", default=[], help="a file or folder to read")
    options = parser.parse_args()

    if options.folder:
        # Whatever is imported at the start may have asked for the folder already.
        tempfile.tempdir = os.environ["TMPDIR"] = options.folder
        for name in ("TEST_DATA_ROOT_PATH", "TRITON_HOME"):  # TVM and Triton write at home, else
            os.environ.setdefault(name, options.folder)
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its pool may not start here
        writes, reads = tuple(map(Path, options.writes)), tuple(map(Path, options.reads))
        own = Path(options.folder)
        sandbox.enter(sandbox.Access(own, writes, reads))
        os.chdir(options.folder)  # TVM makes another where it is
    # Torch and TVM are a million objects, which would be looked at again and again.
    gc.set_threshold(50_000, 20, 20)
    # Compilers print; the caller's standard output is not theirs.
    os.dup2(2, 1)
    # Processes that we start (a compiler, a tuner's) must not keep the socket open.
    os.set_inheritable(options.fd, False)
    TURNS.file = options.turns
    if TURNS.file >= 0:
        os.set_inheritable(TURNS.file, False)
    conn = Connection(options.fd)
    requests: queue.Queue[_Request] = queue.Queue()
    worker = _Worker(conn, options.session or REGISTRY[options.ir].session, requests)
    _start(worker)
    while True:
        try:
            message = conn.recv()
            (worker.replies if message[0] == "records" else requests).put(message)
        except (EOFError, OSError):
            _parent_gone(options.folder)


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


def _parent_gone(folder: str) -> NoReturn:
    """End at once, in the middle of whatever is being done, with all that we started."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    if os.getpgrp() == os.getpid():  # as the client starts us: the group is ours
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


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
                    # A half-made import cannot be mended from within; the next request gets a new
                    # process, which may find things put right.
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
                gc.freeze()
            failed = "error"
            args, kwargs = pickle.loads(payload)
            self.send("begun", call)
            return "result", getattr(self.session, method)(*args, progress=progress, **kwargs)
        except EngineError as error:
            if error.__cause__ is not None:
                traceback.print_exc()
            return failed, error
        except BaseException as error:  # also SystemExit: the session has no say in our end
            explained = explain(error, method)
            if self.session is None:
                explained.hint = "The engine could not start; its log has the whole story."
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
