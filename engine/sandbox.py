"""The sandbox of an engine's process: the tightest that the system gives without root.

Landlock lets it read its environment and the files that it is to open, and write to its own folder.
User namespaces, if allowed, take away the network, give it a `/dev/shm`, and mount all other file
systems read-only, which protects modes, times and attributes. seccomp refuses calls beyond those.
What the system refuses is left out; `require` checks what strangers' files need.
"""

import contextlib
import ctypes
import errno
import os
import platform
import resource
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from relascope.core.errors import EngineError
from relascope.core.place import IMPORT_ROOT, cache_folder
from relascope.engine import kept_builds
from relascope.engine.protocol import records
from relascope.engine.protocol.source import EVERYTHING
from relascope.passes.catalogue.user import VARIABLE as PASS_FILES

SETTING = "RELASCOPE_SANDBOX"
"""Environment variable: "off" starts engines without a sandbox."""

READABLE = "RELASCOPE_READABLE"
"""Environment variable: more files and folders that engines may read, separated as in PATH."""

TRUST = "RELASCOPE_TRUST_FILES"
"""Environment variable: "1" opens strangers' files where there is no sufficient sandbox."""

READS = "reads only its environment and the files it opens"
WRITES = "writes only to its own folder"

_FORMER_SETTING = "RELASCOPE_ROOM"

_ACTIVE = "RELASCOPE_SANDBOX_ACTIVE"
"""Environment variable of an engine: what its sandbox restricts, for `restrictions`."""

_PROCESSES = 4096

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Access:
    """What a process may reach: `readable` files and folders beside its environment, or
    `EVERYTHING`."""

    folder: Path
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()


def enter(access: Access) -> None:
    """Put this process and its children into a sandbox, before there are threads; see
    `restrictions`."""
    restricted: list[str] = []
    if sys.platform == "linux" and not switched_off():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        writable = [access.folder, *access.writable]
        apart = _unshare()
        read_only = apart and _mount(writable)
        if apart:
            restricted.append("no network")
            # Only in a user namespace does this limit count the children of this process alone.
            soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
            if soft == resource.RLIM_INFINITY or soft > _PROCESSES:
                resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, hard))
                restricted.append(f"at most {_PROCESSES} processes")
        if read_only:
            restricted.append("its own /dev/shm")
        _drop_capabilities()
        restricted += _landlock(writable, access.readable, read_only)
        if _filter_calls(apart, read_only):
            restricted.append("no sockets of other programs")
    os.environ[_ACTIVE] = "; ".join(restricted)


def switched_off() -> bool:
    """Whether the user asked for engines without a sandbox, also by the setting's former name."""
    return "off" in (os.environ.get(SETTING), os.environ.get(_FORMER_SETTING))


def restrictions() -> tuple[str, ...]:
    """What the sandbox of this process restricts; empty without one."""
    return tuple(filter(None, os.environ.get(_ACTIVE, "").split("; ")))


def require(name: str) -> None:
    """Refuse (kind "file") to open an untrusted file in an engine whose sandbox does not restrict
    reading and writing. Scripts may open it."""
    if _ACTIVE not in os.environ or os.environ.get(TRUST) == "1":
        return
    if {READS, WRITES} <= set(restrictions()):
        return
    if switched_off():
        why = f"the sandbox is switched off ({SETTING}=off)"
    elif sys.platform != "linux":
        why = f"relascope has no sandbox on {platform.system()}"
    else:
        why = "this system does not let relascope restrict files (Landlock, Linux 6.2 or newer)"
    message = f"{name} is not opened, because {why}: a flaw in its reader could expose your files."
    hint = f"If you trust its author, pass --trust-files, or set {TRUST}=1 for the page."
    raise EngineError("file", message, name, hint)


# Namespaces -----------------------------------------------------------------------------------

_NEWNS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x40000000
_MS_NOSUID_NODEV, _MS_BIND, _MS_PRIVATE_REC = 0x6, 0x1000, 0x44000
_MOUNT_SETATTR, _RECURSIVE, _RDONLY = 442, 0x8000, 1
_FILES_OF_OTHERS = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def _unshare() -> bool:
    """Move to new namespaces as the same user; return whether that is allowed."""
    user, group = os.getuid(), os.getgid()
    if len(os.listdir("/proc/self/task")) > 1:
        return False
    if _libc.unshare(_NEWUSER | _NEWNS | _NEWIPC | _NEWNET):
        return False
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in maps.items():
        Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
    return True


def _mount(writable: Iterable[Path]) -> bool:
    """Mount everything but some folders read-only, and a new /dev/shm; return whether it worked."""
    places = [os.fsencode(p) for p in writable]
    shared = b"tmpfs", b"/dev/shm", b"tmpfs", ctypes.c_ulong(_MS_NOSUID_NODEV)
    return (
        _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_PRIVATE_REC), None) == 0
        and all(_libc.mount(p, p, None, ctypes.c_ulong(_MS_BIND), None) == 0 for p in places)
        and _set_read_only(b"/", True)
        # CUDA writes there as it starts.
        and (not _has_nvidia() or _set_read_only(b"/proc", False))
        and all(_set_read_only(p, False) for p in places)
        and (not os.path.isdir("/dev/shm") or not _libc.mount(*shared, None))
    )


def _has_nvidia() -> bool:
    return os.path.exists("/dev/nvidiactl")


def _set_read_only(place: bytes, on: bool) -> bool:
    attributes = struct.pack("QQQQ", *((_RDONLY, 0) if on else (0, _RDONLY)), 0, 0)
    size, at = ctypes.c_size_t(len(attributes)), ctypes.c_int(-100)  # AT_FDCWD
    flags = ctypes.c_uint(_RECURSIVE if on else 0)
    return not _libc.syscall(_MOUNT_SETATTR, at, place, flags, attributes, size)


def _drop_capabilities() -> None:
    """Give up root's capabilities, also those in new namespaces, which could change mounts. Keep
    access to files of other owners, such as a model's."""
    header, data = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0)), bytearray(24)
    buffer = (ctypes.c_char * 24).from_buffer(data)
    _libc.capget(header, buffer)
    kept = (rights & _FILES_OF_OTHERS for rights in struct.unpack_from("II", data))
    data[:] = struct.pack("6I", *kept, *[0] * 4)
    if _libc.capset(header, buffer):
        raise OSError(ctypes.get_errno(), "capset")


# Landlock -------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on each processor
_NO_NEW_PRIVILEGES = 38
_READ = 1 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_OF_FILES = _READ & ~(1 << 3) | _WRITE_FILE | _TRUNCATE
# Rights to write, by the version of Landlock that knows them.
_WRITE_RIGHTS = {1: sum(1 << bit for bit in (1, *range(4, 13))), 2: 1 << 13, 3: _TRUNCATE}
_SIGNALS_AND_SOCKETS = 0b11
_DEVICES = ["null", "zero", "full", "random", "urandom", "dri", "kfd"]


def _landlock(writable: Iterable[Path], readable: Iterable[Path], read_only: bool) -> Iterator[str]:
    """Restrict what this process reads and writes; yield what is restricted."""
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return
    everything = Path(EVERYTHING) in readable
    writes = sum(rights for since, rights in _WRITE_RIGHTS.items() if version >= since)
    handled = writes if everything else writes | _READ
    scoped = _SIGNALS_AND_SOCKETS if version >= 6 else 0
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("QQQ", handled, 0, scoped)[:size]
    length = ctypes.c_size_t(len(attributes))
    rules: int = _libc.syscall(_CREATE_RULESET, attributes, length, ctypes.c_uint32(0))
    if rules < 0:
        return
    devices = [Path("/dev", name) for name in _DEVICES] + [*Path("/dev").glob("nvidia*")]
    own = [Path("/dev/shm")] if read_only else []
    for path in (*writable, *devices, *own, Path("/proc/self")):
        _allow(rules, path, handled)
    for path in () if everything else (*environment(), *readable):
        _allow(rules, path, _READ)
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done: int = _libc.syscall(_RESTRICT_SELF, rules, ctypes.c_uint32(0))
    os.close(rules)
    if done:
        return
    if version >= 3 or read_only:  # older ones let any file be truncated
        yield WRITES
    if not everything:
        yield READS
    if version >= 6:
        yield "signals only to itself"


def _allow(rules: int, path: Path, rights: int) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights &= -1 if stat.S_ISDIR(os.fstat(handle).st_mode) else _OF_FILES
        rule = struct.pack("=Qi", rights, handle)
        _libc.syscall(_ADD_RULE, rules, ctypes.c_int(1), rule, ctypes.c_uint32(0))
        os.close(handle)


_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "sys", "proc")
_INSTALLED = ("opt", "nix/store", "gnu/store", "run/opengl-driver")
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "localtime", "timezone"),
    *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "resolv.conf", "gai.conf"),
    *("protocols", "services", "os-release", "OpenCL", "vulkan"),
)
_VARIABLES = (
    *("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"),
    *("TVM_HOME", "TVM_LIBRARY_PATH", "RELASCOPE_RELAY_TVM"),
)
_COMPILERS = ("nvcc", "gcc", "clang")


def environment() -> Iterator[Path]:
    """What each engine may read: the system's and Python's libraries and programs, relascope,
    caches of models and kernels, and the user's passes."""
    yield from (Path("/", name) for name in _SYSTEM)
    yield from (Path("/etc", name) for name in _ETC)
    found = [Path("/", name) for name in _INSTALLED]
    found += [Path(IMPORT_ROOT), Path(__file__).resolve().parents[1]]
    found += map(Path, (sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path)))
    for folder in {sys.prefix, *filter(os.path.isdir, sys.path)}:  # packages may be links
        with os.scandir(folder) as entries:
            found += [Path(e.path) for e in entries if e.is_symlink()]
    for variable in _VARIABLES:
        found += map(Path, filter(None, os.environ.get(variable, "").split(os.pathsep)))
    found += [Path(p).resolve().parents[1] for p in map(shutil.which, _COMPILERS) if p]
    for named in filter(None, os.environ.get(PASS_FILES, "").split(os.pathsep)):
        found += [Path(named).parent]
        yield Path(named)
    with contextlib.suppress(RuntimeError):  # a user without a home
        found += [records.root(), cache_folder() / "stubs", *_models()]
    found += filter(None, [kept_builds.root()])
    private = [p.resolve() for p in _private()]
    for path in found:
        real = path.resolve()
        if not any(p.is_relative_to(real) for p in private):
            yield real
    yield from map(Path, filter(None, os.environ.get(READABLE, "").split(os.pathsep)))


def _private() -> Iterator[Path]:
    """Folders that are never readable as a whole, even if a variable names them."""
    yield Path(tempfile.gettempdir())
    yield Path("/tmp")
    with contextlib.suppress(RuntimeError):
        yield Path.home()


def _models() -> Iterator[Path]:
    """The caches of Hugging Face's and torch's hubs, as those find them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    hugging = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    yield Path(os.environ.get("HF_HUB_CACHE") or hugging / "hub")
    yield Path(os.environ.get("TORCH_HOME") or cache / "torch") / "hub"


# System calls ---------------------------------------------------------------------------------

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CALLS = {
    "x86_64": {
        "socket": [41],
        "always": [425, 248, 249, 250],  # io_uring_setup, add_key, request_key, keyctl
        "ipc": [29, 64, 68, 240],  # shmget, semget, msgget, mq_open
        # chmod, fchmod, chown, fchown, lchown, utime, utimes, futimesat,
        # setxattr and its like, removexattr and its like, fchownat, fchmodat, utimensat
        "files": [
            *(*range(90, 95), 132, 235, 261, *range(188, 191), *range(197, 200)),
            *(260, 268, 280, 452, 463, 466),
        ],
    },
    "aarch64": {
        "socket": [198],
        "always": [425, 217, 218, 219],
        "ipc": [194, 190, 186, 180],
        "files": [52, 53, 54, 55, 88, *range(5, 8), *range(14, 17), 452, 463, 466],
    },
}
_DOMAINS = (2, 10, 16)  # IPv4, IPv6 and netlink, which a network namespace keeps apart


def _filter_calls(apart: bool, read_only: bool) -> bool:
    """Refuse system calls that reach beyond the sandbox in other ways; return whether it worked.

    Mounts do not hide other programs' sockets (ssh-agent, D-Bus, Docker). Keys of the kernel and,
    without namespaces, System V memory outlast a process. Landlock ignores modes, owners and times.
    """
    calls = _CALLS.get(platform.machine())
    if calls is None or sys.maxsize < 1 << 32:
        return False
    refused = calls["always"] + ([] if apart else calls["ipc"])
    return refuse_calls(refused + ([] if read_only else calls["files"]), calls["socket"])


def refuse_calls(numbers: Iterable[int], sockets: Iterable[int] = ()) -> bool:
    """Have the kernel refuse system calls to this process and its children; return whether it will.
    `sockets` has the number of `socket`, refused for kinds that a network namespace shares."""
    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x54, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    # Each instruction is (code, jump if true, jump if false, value); 4 is the architecture's place.
    program = [
        (load, 0, 0, 4),
        (equal, 1, 0, _ARCHITECTURES[platform.machine()]),
        (give, 0, 0, refuse),
    ]
    program += [(load, 0, 0, 0), (at_least, 0, 1, 0x40000000), (give, 0, 0, refuse)]  # x32's
    for number in numbers:
        program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    for number in sockets:
        checks = [(load, 0, 0, 16)]
        for domain in _DOMAINS:
            checks += [(equal, 0, 1, domain), (give, 0, 0, allow)]
        if _has_nvidia():
            # CUDA opens one as it starts. It connects only to its own kind: not to D-Bus,
            # ssh-agent or Docker.
            checks += [(equal, 0, 4, 1), (load, 0, 0, 24), (bits, 0, 0, 0xF)]
            checks += [(equal, 0, 1, 5), (give, 0, 0, allow)]  # AF_UNIX, SOCK_SEQPACKET
        checks += [(give, 0, 0, refuse)]
        program += [(equal, 0, len(checks), number), *checks]
    program += [(give, 0, 0, allow)]
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    held = ctypes.create_string_buffer(code, len(code))
    about = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(held))
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return not _libc.prctl(22, 2, about, 0, 0)  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
