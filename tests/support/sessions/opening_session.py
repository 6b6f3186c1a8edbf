"""A session that opens files as an engine does, and needs no TVM."""

import ctypes
import os
import socket
import struct
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.sandbox import restrictions

os.environ.setdefault("RELASCOPE_TEST_CACHE", tempfile.gettempdir() + "/cache")  # as Inductor does


def done(tries):
    """The names of what can be done."""
    found = []
    for name, attempt in tries.items():
        with suppress(OSError):
            attempt()
            found.append(name)
    return tuple(found)


class OpeningSession:
    def describe(self, *, progress):
        return EngineInfo("none", "0", "", (), sandbox=restrictions())

    def tensors(self, path, *, progress):
        from relascope.engine.files.opening import opening
        from relascope.engine.files.tensors import read_tensors

        with opening(Path(path)):
            return [tuple(t.shape) for _, t in read_tensors(Path(path))]

    def temporary(self, *, progress):
        """The folder of temporary files, that of Triton, and one that an import chose in it."""
        names = ("TRITON_HOME", "RELASCOPE_TEST_CACHE")
        return tempfile.gettempdir(), *(os.environ[n] for n in names)

    def readable(self, paths, source=None, *, progress):
        return done({path: Path(path).read_bytes for path in paths})

    def reach(self, folders, victim, socket_path, port, *, progress):
        """Which ways out of the sandbox succeed: writing to folders, reading and changing the file
        `victim`, servers outside."""
        libc = ctypes.CDLL(None, use_errno=True)
        Path(tempfile.gettempdir(), "own").write_text("own")

        def called(result):
            if result < 0:
                raise OSError(ctypes.get_errno(), "")

        def mounted_writable():
            attributes = struct.pack("QQQQ", 0, 1, 0, 0)
            called(libc.syscall(442, -100, b"/", 0x8000, attributes, ctypes.c_size_t(32)))

        tries = {
            **{
                f"write {name}": partial(Path(folder, "canary").write_text, "out")
                for name, folder in folders.items()
            },
            **{f"list {name}": partial(os.listdir, folder) for name, folder in folders.items()},
            "read": lambda: Path(victim).read_text(),
            "overwrite": lambda: Path(victim).write_text("changed"),
            "truncate": lambda: os.truncate(victim, 0),
            "truncate as it is opened": lambda: os.open(victim, os.O_RDONLY | os.O_TRUNC),
            "remove": lambda: os.unlink(victim),
            "rename": lambda: os.rename(victim, victim + "-2"),
            "link": lambda: os.link(victim, Path(tempfile.gettempdir(), "link")),
            "mode": lambda: os.chmod(victim, 0o777),
            "times": lambda: os.utime(victim, (1, 1)),
            "attribute": lambda: os.setxattr(victim, "user.canary", b"out"),
            "mount writable": mounted_writable,
            "unmount /dev/shm": lambda: called(libc.umount2(b"/dev/shm", 2)),
            "environment of the app": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
            "signal the app": lambda: os.kill(os.getppid(), 0),
            "network": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
            "socket of a program": lambda: socket.socket(socket.AF_UNIX).connect(socket_path),
            "System V's memory": lambda: called(libc.shmget(0x5EED, 64, 0o1600)),
        }
        return done(tries)
