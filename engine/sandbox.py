"""The sandbox that an engine's process works in: the tightest that the system gives without root.

A namespace of its own without network, in which only itself can be reached; a disk that may be read
and not written, but for the engine's own folders (Landlock); signals to nobody outside; and no more
processes than it needs. What the system refuses is left out, and the rest holds.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

SETTING = "RELASCOPE_SANDBOX"
"""Environment variable: "off" starts engines without a sandbox."""

_FORMER_SETTING = "RELASCOPE_ROOM"

_ACTIVE = "RELASCOPE_SANDBOX_ACTIVE"
"""Environment variable of an engine: what its sandbox restricts, for `restrictions`."""

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_PROCESSES = 4096
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on each processor
_NO_NEW_PRIVILEGES = 38
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
# Rights by the version of Landlock that knows them, without those to execute and to read.
_WRITES = {1: sum(1 << bit for bit in (1, *range(4, 13))), 2: 1 << 13, 3: _TRUNCATE}
_SIGNALS_AND_SOCKETS = 0b11
_DEVICES = ("null", "zero", "full", "tty", "shm", "dri", "kfd", "ptmx", "pts")


def enter(writable: Iterable[Path], network: bool) -> tuple[str, ...]:
    """Put this process, and all that it starts, into a sandbox. Call it before there are threads.

    Args:
        writable: folders that may be written to, with all in them.
        network: whether it is to reach other processes and machines.

    Returns:
        What is restricted, each in a few words.
    """
    if sys.platform != "linux" or switched_off():
        return ()
    libc = ctypes.CDLL(None, use_errno=True)
    restricted = []
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not network and _alone(libc):
        restricted += ["no network", "a user namespace of its own"]
        # Only there are this process's counted apart from the rest of the user's.
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        if soft == resource.RLIM_INFINITY or soft > _PROCESSES:
            resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, hard))
            restricted.append(f"at most {_PROCESSES} processes")
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version >= 1 and _read_only(libc, version, writable):
        restricted.append("a read-only disk")
        if version >= 6:
            restricted.append("signals only to itself")
    os.environ[_ACTIVE] = "; ".join(restricted)
    return tuple(restricted)


def switched_off() -> bool:
    """Whether the user asked for engines without a sandbox, also by the setting's former name."""
    return "off" in (os.environ.get(SETTING), os.environ.get(_FORMER_SETTING))


def restrictions() -> tuple[str, ...]:
    """What the sandbox of this process restricts; empty without one."""
    return tuple(filter(None, os.environ.get(_ACTIVE, "").split("; ")))


def _alone(libc: ctypes.CDLL) -> bool:
    """Move to namespaces of its own, as the same user; whether that is allowed."""
    user, group = os.getuid(), os.getgid()
    if len(os.listdir("/proc/self/task")) > 1 or libc.unshare(_NEWUSER | _NEWNET):
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", user), ("gid_map", group)):
        told = text if name == "setgroups" else f"{text} {text} 1"
        Path(f"/proc/self/{name}").write_text(str(told), encoding="ascii")
    # The loopback is down in a new namespace; TVM's tuner measures by way of it.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
    return True


def _read_only(libc: ctypes.CDLL, version: int, writable: Iterable[Path]) -> bool:
    handled = sum(rights for since, rights in _WRITES.items() if version >= since)
    scoped = _SIGNALS_AND_SOCKETS if version >= 6 else 0
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("QQQ", handled, 0, scoped)[:size]
    rules: int = libc.syscall(
        _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)
    )
    if rules < 0:
        return False
    devices = [p for name in _DEVICES if (p := Path("/dev", name)).exists()]
    devices += Path("/dev").glob("nvidia*")
    for path in (*writable, *devices, Path("/proc/self")):
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = handled if path.is_dir() else handled & (_WRITE_FILE | _TRUNCATE)
        rule = struct.pack("=Qi", rights, handle)
        libc.syscall(_ADD_RULE, rules, ctypes.c_int(1), rule, ctypes.c_uint32(0))
        os.close(handle)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done: int = libc.syscall(_RESTRICT_SELF, rules, ctypes.c_uint32(0))
    os.close(rules)
    return done == 0
