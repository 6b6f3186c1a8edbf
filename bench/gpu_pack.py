"""Our dependencies in archives, for a machine with PyTorch for GPUs and without a network.

Two TVMs and a few small packages; what PyTorch, transformers and networkx bring is not packed.
Most of it serves every Python; what does not is an archive for each, taken from the registry where
the environment here is of another. Nothing is imported here but the standard library.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"
PYTHONS = ("3.10", "3.11", "3.12")
MOST = 60 << 20
"""Bytes of an archive."""
MANIFEST, UNPACKED = "manifest.json", "unpacked.json"

OWN = ("apache-tvm", "apache-tvm-ffi", "bitblas")
"""Always ours, whatever the machine has of that name."""
CUDA_RUNTIME = ("nvidia-cuda-runtime-cu12", "12.9.79")
"""Which has the `libcudart.so.12` that Relay's TVM is linked with."""

_BITBLAS = "bitblas/3rdparty/tvm"
_ARCHIVES: dict[str, dict[str, tuple[str, ...]]] = {
    "relax-compiler": {"apache-tvm": ("tvm/lib/libtvm_compiler.so",)},
    "relax": {"apache-tvm": ("tvm/*", "*.dist-info/*")},
    "relay": {
        "bitblas": (f"{_BITBLAS}/python/tvm/*", f"{_BITBLAS}/build/libtvm.so", "*.dist-info/*"),
        CUDA_RUNTIME[0]: ("*/libcudart.so.12",),
    },
    "small": {n: ("*",) for n in ("attrs", "cloudpickle", "decorator", "psutil", "pyelftools")},
    "python": {n: ("*",) for n in ("apache-tvm-ffi", "ml_dtypes", "scipy")},
}
"""What each archive holds, by the distribution: files by their patterns, none of them twice."""
_LEFT_OUT = (
    "*.pyc", "*.pyi", "*.pyx", "*.pxd", "*.h", "*.hpp", "*.cuh", "*.cc", "*.a", "*.lib",
    "*/include/*", "*/3rdparty/cutlass/*", "tvm_ffi/3rdparty/*", "tvm_ffi/src/*",
    "tvm/lib64/*", "tvm/src/*", "tvm/web/*", "*/tests/*", "*/cmake/*",
)  # fmt: skip
"""Headers, sources and tests."""


class DoesNotFit(Exception):
    """What is packed and a machine are not for each other; a sentence says why."""


def pack(folder: Path, pythons: Sequence[str], preset: int = 6, most: int = MOST) -> int:
    """Write the archives and what tells of them.

    Args:
        pythons: that it is for, such as "3.12".
        preset: of xz, with a dictionary of 64 MiB; 0 for what need not be small, soon.
        most: bytes of an archive.

    Raises:
        DoesNotFit: a Python is not ours, a package is not to be had, or an archive is too large.
    """
    if unknown := set(pythons) - set(PYTHONS):
        raise DoesNotFit(f"relascope runs on Python {', '.join(PYTHONS)}, not {min(unknown)}.")
    folder.mkdir(parents=True, exist_ok=True)
    jobs: list[tuple[str, str, str, Mapping[str, tuple[str, ...]]]] = []
    for name, held in _ARCHIVES.items():
        for python in pythons if name == "python" else [""]:
            jobs.append((f"{name}{'-' + python if python else ''}", python, name, held))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda j: _archive(folder, *j, preset), jobs))
    archives = {}
    for (_, python, _, held), path in zip(jobs, made, strict=True):
        size = path.stat().st_size
        if size >= most:
            raise DoesNotFit(f"{path.name} takes {size >> 20} MiB, more than {most >> 20} MiB.")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        archives[path.name] = {
            "sha256": digest,
            "bytes": size,
            "python": python,
            "of": sorted(held),
        }
        print(f"{size / 2**20:6.1f} MiB  {path.name}  {f'Python {python}' if python else ''}")
    document = {"pythons": list(pythons), "archives": archives}
    (folder / MANIFEST).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _archive(
    folder: Path,
    label: str,
    python: str,
    name: str,
    held: Mapping[str, tuple[str, ...]],
    preset: int,
) -> Path:
    path = folder / f"{label}.tar.xz"
    chain = [
        {"id": lzma.FILTER_X86},
        {"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": (64 if preset else 1) << 20},
    ]
    with lzma.open(path, "wb", filters=chain) as out, tarfile.open(fileobj=out, mode="w") as tar:
        for distribution, patterns in held.items():
            for file, content in _files(distribution, python):
                if _wanted(name, distribution, file, patterns):
                    _add(tar, f"{distribution}/{_put(distribution, file)}", content)
    return path


def _wanted(archive: str, distribution: str, file: str, patterns: Sequence[str]) -> bool:
    if any(fnmatch.fnmatch(file, p) for p in _LEFT_OUT) or file.startswith(("../", "/")):
        return False
    alone = _ARCHIVES["relax-compiler"].get(distribution, ())
    if archive != "relax-compiler" and file in alone:
        return False
    return any(fnmatch.fnmatch(file, p) for p in patterns)


def _put(distribution: str, file: str) -> str:
    """Where a file goes; CUDA's runtime beside the TVM that needs it, which looks there."""
    if distribution == CUDA_RUNTIME[0]:
        return f"{_BITBLAS}/build/{Path(file).name}"
    return file


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode = len(content), 0o644
    tar.addfile(about, io.BytesIO(content))


def _files(distribution: str, python: str) -> Iterator[tuple[str, bytes]]:
    """The files of a distribution for a Python ("" for any), by their paths among packages."""
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        found = None
    if found is not None and _fits(found.read_text("WHEEL") or "", python):
        for file in found.files or ():
            place = Path(str(file.locate()))
            if place.is_file():
                yield str(file), place.read_bytes()
        return
    version = CUDA_RUNTIME[1] if distribution == CUDA_RUNTIME[0] else _pinned(distribution, python)
    with tempfile.TemporaryDirectory() as folder:
        fetched = _fetched(distribution, version, python or THIS, Path(folder))
        with zipfile.ZipFile(fetched) as wheel:
            for entry in (e for e in wheel.infolist() if not e.is_dir()):
                yield entry.filename, wheel.read(entry)


def _fits(wheel: str, python: str) -> bool:
    """Whether what was installed from a wheel serves a Python, by its tags."""
    tags = re.findall(r"^Tag: (\w+)-(\w+)-", wheel, re.MULTILINE)
    wanted = "cp" + (python or THIS).replace(".", "")
    for interpreter, abi in tags:
        older = re.fullmatch(r"cp3(\d+)", interpreter)
        if abi == "none" or interpreter == wanted:
            return True
        if abi == "abi3" and older and int(older[1]) <= int((python or THIS).partition(".")[2]):
            return True
    return False


def _pinned(distribution: str, python: str) -> str:
    file = ROOT / f"constraints/python-{python or THIS}.txt"
    name = distribution.replace("_", "-")
    match = re.search(rf"^{re.escape(name)}==(\S+)", file.read_text(), re.MULTILINE)
    if match is None:
        raise DoesNotFit(f"{distribution} is neither here nor in {file.name}.")
    return match[1]


def _fetched(distribution: str, version: str, python: str, folder: Path) -> Path:
    """A wheel from the registry."""
    digits = python.replace(".", "")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
    for abi in (f"cp{digits}", "abi3", "none"):
        command += ["--abi", abi]
    for level in ("2_28", "2_27", "2_24", "2_17", "2_12"):
        command += ["--platform", f"manylinux_{level}_x86_64"]
    command += ["--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64"]
    command += ["--dest", str(folder), f"{distribution}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise DoesNotFit(f"{distribution} {version} for Python {python} cannot be had: {last}")
    return wheels[0]


def unpack(folder: Path, place: Path) -> int:
    """Lay down the archives that are there, and say which are still wanted.

    Of the small packages, those that this Python has already are left out.

    Returns:
        0 where all is there now, else 1.

    Raises:
        DoesNotFit: they are for other Pythons, or one is not as it was packed.
    """
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DoesNotFit(f"{folder} holds nothing that was packed: {error}") from error
    if THIS not in document["pythons"]:
        packed = " and ".join(document["pythons"])
        raise DoesNotFit(
            f"This is Python {THIS} ({sys.executable}), and it was packed for {packed}: pack it "
            f"with --python {THIS}."
        )
    wanted = {n: a for n, a in document["archives"].items() if a["python"] in ("", THIS)}
    place.mkdir(parents=True, exist_ok=True)
    known = _known(place)
    before = known.get("archives", {}) if known.get("python") == THIS else {}
    # Of archives that were packed anew since, what lies there is another's.
    laid = {n: a["sha256"] for n, a in wanted.items() if before.get(n) == a["sha256"]}
    for name, about in wanted.items():
        path = folder / name
        if not path.exists() or name in laid:
            continue
        if hashlib.sha256(path.read_bytes()).hexdigest() != about["sha256"]:
            raise DoesNotFit(f"{path} is not as it was packed: bring it again.")
        _lay_down(path, place)
        laid[name] = about["sha256"]
        print(f"{name}: laid down in {place}")
        state = {"python": THIS, "archives": laid, "wanted": sorted(wanted)}
        (place / UNPACKED).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    missing = [n for n in wanted if n not in laid]
    if missing:
        print(f"Still wanted: {', '.join(missing)}. Bring them and unpack again.")
    return 1 if missing else 0


def _lay_down(path: Path, place: Path) -> None:
    with lzma.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            distribution, _, file = member.name.partition("/")
            target = (place / file).resolve()
            if not member.isfile() or place.resolve() not in target.parents:
                raise DoesNotFit(f"{path} holds {member.name!r}, which nobody packed.")
            if distribution in _ARCHIVES["relay"] or distribution in OWN or not _has(distribution):
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                target.write_bytes(content.read())


def _has(distribution: str) -> bool:
    """Whether this Python has a distribution by itself."""
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _known(place: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((place / UNPACKED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def use(place: Path) -> None:
    """Have this process, and those that it starts, find what was unpacked, where it is needed.

    Raises:
        DoesNotFit: neither this Python nor the place has our dependencies, or not all of them, or
            for another Python.
    """
    if importlib.util.find_spec("tvm") and importlib.util.find_spec("bitblas"):
        return
    known = _known(place)
    if not known:
        raise DoesNotFit(
            "This Python has not both TVMs, and nothing was unpacked: run `make env`, or bring "
            "what `bench/gpu.py --pack FOLDER` writes, and --unpack it here."
        )
    if known["python"] != THIS:
        raise DoesNotFit(
            f"What was unpacked in {place} is for Python {known['python']}, and this is {THIS}."
        )
    if missing := [n for n in known["wanted"] if n not in known["archives"]]:
        raise DoesNotFit(f"Not all was unpacked: {', '.join(missing)} is still wanted.")
    sys.path.insert(0, str(place))
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(place), before)))
