"""Files by somebody who has read what checks them, opened by the command line as a person would.

The sandbox is off and the files are trusted, so that what reads them holds alone.
"""

import ctypes
import os
import select
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fuzz import LARGEST, LONGEST, RAW

import handwritten
import hostile
from relascope.core.place import with_import_root
from relascope.engine.sandbox import SETTING

LIBC = ctypes.CDLL(None)
CASES = handwritten.crafted()
FORMULAS = ("=", "@", "\t", "-1+")
"""How a cell begins that a spreadsheet takes for code."""


def opened(make, suffix, command, place):
    """What becomes of a file in a new folder, with an empty home and an empty temporary folder.

    Returns:
        Status, what was said, seconds of the processor, bytes of memory, whether the canary was
        read, files that were made, and what was exported.
    """
    folder, out, model = place / "files", place / "out", place / "model.pt"
    for one in (folder, out, place / "home", place / "tmp"):
        one.mkdir()
    path, canary = folder / f"model{suffix}", place / "canary"
    path.write_bytes(make(folder))
    model.write_bytes(hostile.honest(".pt"))
    canary.write_text("canary".ljust(64))
    beside = set(folder.rglob("*"))
    notify = LIBC.inotify_init1(os.O_NONBLOCK)
    LIBC.inotify_add_watch(notify, os.fsencode(canary), 0x21)  # IN_OPEN, IN_ACCESS
    stands = {"FILE": str(path), "MODEL": str(model)}
    words = [stands.get(w, w).replace("OUT.", f"{out}/out.") for w in (*command, "--trust-files")]
    own = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp"), SETTING: "off"}
    own["PYTHONPATH"] = with_import_root(os.environ.get("PYTHONPATH", ""))
    env = {n: v for n, v in os.environ.items() if not n.startswith("XDG_")} | own
    with (place / "said").open("wb") as errors:
        run = subprocess.Popen(
            [sys.executable, "-m", "relascope.commands.main", *words],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
        _, ended, used = os.wait4(run.pid, 0)  # with its engines
        run.returncode = os.waitstatus_to_exitcode(ended)
    read = select.select([notify], [], [], 0)[0] != []
    os.close(notify)
    left = [p for one in ("home", "tmp") for p in (place / one).rglob("*") if p.is_file()]
    made = [p for p in left if "relascope" not in str(p.relative_to(place))]
    made += set(folder.rglob("*")) - beside
    exported = "".join(p.read_text(errors="replace") for p in out.rglob("*") if p.is_file())
    said = (place / "said").read_text(errors="replace").strip()
    seconds = used.ru_utime + used.ru_stime
    return run.returncode, said, seconds, used.ru_maxrss << 10, read, made, exported


@cache
def start_of(suffix, command):
    """Seconds of the processor until an honest file is open."""
    with TemporaryDirectory() as folder:
        make = handwritten.honest(suffix, command)
        status, said, seconds, *_ = opened(make, suffix, command, Path(folder))
    assert status == 0, said
    return seconds


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "suffix", "make", "command"),
    CASES,
    ids=[f"{c[0]} {c[-1]} {suffix} {name[:30]}" for name, suffix, _, c in CASES],
)
def test_nothing_in_a_crafted_file_runs_or_touches_a_file(name, suffix, make, command, tmp_path):
    status, said, seconds, memory, read, made, exported = opened(make, suffix, command, tmp_path)
    assert not made and not read
    assert status in (0, 1, 2) and not RAW.search(said), said
    assert status == 0 or "error: " in said or suffix == ".zip", said
    assert handwritten.SCRIPT not in exported
    cells = exported.replace("\n", ",").split(",") if "OUT.csv" in command else []
    assert not any(c.lstrip('"').startswith(FORMULAS) for c in cells)
    assert seconds - start_of(suffix, command) <= LONGEST
    assert memory <= LARGEST
