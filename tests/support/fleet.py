"""A fleet on this machine for tests: TVM's tracker, and one server of an engine's TVM."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from place import ROOT
from relascope.core.errors import EngineError
from relascope.engine.measure.fleet import check
from relascope.engine.protocol.tuning import Fleet

KEY = "here"


class LocalFleet:
    """A context manager: the processes that serve an IR's TVM, and what they start, end with it."""

    def __init__(self, ir: str) -> None:
        self.ir = ir
        self._processes: list[subprocess.Popen] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, it is closed with this

    def __enter__(self) -> Fleet:
        port, own = free_port(), free_port()
        fleet = Fleet(f"127.0.0.1:{port}", KEY)
        try:
            self._start("tracker", "--host=127.0.0.1", f"--port={port}", f"--port-end={port + 1}")
            self._start(
                "server",
                "--host=127.0.0.1",
                f"--tracker={fleet.tracker}",
                f"--key={KEY}",
                f"--port={own}",
                f"--port-end={own + 1}",
            )
            self._wait(fleet)
        except BaseException:
            self.__exit__()
            raise
        return fleet

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._log.close()

    def _start(self, what: str, *options: str) -> None:
        command = [sys.executable, "-m", "relascope.engine.serve", self.ir, what, *options]
        self._processes.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        )

    def _wait(self, fleet: Fleet, seconds: float = 90.0) -> None:
        until = time.monotonic() + seconds
        while True:
            ended = [p for p in self._processes if p.poll() is not None]
            if ended or time.monotonic() > until:
                self._log.seek(0)
                raise RuntimeError(f"the fleet did not start: {self._log.read().decode()}")
            try:
                check(fleet)
                return
            except EngineError:
                time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
