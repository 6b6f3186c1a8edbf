"""Open crafted and mutated files as a person would, on the command line, and see what happens.

Each file of `crafted.handwritten` and `crafted.mutated` (tests/support) stands in its own folder,
below a canary, and is opened three times: in the sandbox; with the sandbox off, where files of
others are refused; and off with `--trust-files`, where only the reader's checks protect.

Counted are files that created another (beside them, in the home, the temporary folder or /dev/shm),
by code or without, read the canary (by inotify), took more than 10 s of processor time beyond an
engine's start or 2 GiB, got no sentence as an error, or whose names came out as code. Returns 1 if
there is one."""

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/support/crafted"))
import common  # isort: skip
import handwritten  # isort: skip
import hostile  # isort: skip
import mutated  # isort: skip
from relascope.core.place import with_import_root
from relascope.engine.sandbox import SETTING

MODES = {"sandboxed": ("on", ()), "off": ("off", ()), "trusted": ("off", ("--trust-files",))}
BARS = ("touched", "read", "over 10 s", "over 2 GiB", "raw", "code")
HANGS = 120.0  # s
RAW = re.compile(
    r"Traceback|INTERNAL ASSERT|ASSERT FAILED|frame #\d|\.cpp:|csrc/|std: ?:|c10::|pybind"
    r"|object at 0x|Exception raised|please report a bug|process (was ended|ended)|\n\s+File \""
)
LIBC = ctypes.CDLL(None)
Case = tuple[str, str, Callable[[Path], bytes], tuple[str, ...]]


def opened(case: Case, mode: str, place: Path, model: Path) -> dict[str, Any]:
    """What happens to a file that is opened in a new folder, with an empty home and temporary
    folder; `model` is a valid one, for files that are no model."""
    name, suffix, make, command = case
    folder, out = place / "files", place / "out"
    for one in (place, folder, out, place / "home", place / "tmp"):
        one.mkdir()
    path = folder / f"model{suffix}"
    path.write_bytes(make(folder))
    beside = sorted(folder.rglob("*"))
    (place / "canary").write_text("canary".ljust(64))
    notify = LIBC.inotify_init1(os.O_NONBLOCK)
    LIBC.inotify_add_watch(notify, os.fsencode(place / "canary"), 0x21)  # IN_OPEN, IN_ACCESS
    setting, options = MODES[mode]
    words = [{"FILE": str(path), "MODEL": str(model)}.get(w, w) for w in (*command, *options)]
    program = [sys.executable, "-m", "relascope.commands.main"]
    program += [w.replace("OUT.", f"{out}/out.") for w in words]
    own = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp"), SETTING: setting}
    env = {n: v for n, v in os.environ.items() if not n.startswith("XDG_")} | own
    with (place / "said").open("w+b") as errors:
        files: Any = {"stdout": subprocess.DEVNULL, "stderr": errors, "stdin": subprocess.DEVNULL}
        with subprocess.Popen(program, cwd=folder, env=env, start_new_session=True, **files) as run:
            stop = threading.Timer(HANGS, os.killpg, (run.pid, signal.SIGKILL))
            stop.start()
            _, ended, used = os.wait4(run.pid, 0)  # with its engines
            stop.cancel()
            status = run.returncode = os.waitstatus_to_exitcode(ended)
    read = select.select([notify], [], [], 0)[0] != []
    os.close(notify)
    said = (place / "said").read_text(errors="replace").strip()
    left = [p for one in ("home", "tmp") for p in (place / one).rglob("*") if p.is_file()]
    touched = [str(p) for p in left if "relascope" not in str(p.relative_to(place))]
    touched += [str(p) for p in folder.rglob("*") if p not in beside]
    exported = "".join(p.read_text(errors="replace") for p in out.rglob("*") if p.is_file())
    cells = exported.replace("\n", ",").split(",") if "OUT.csv" in command else []
    raw = status not in (0, 1, 2) or (status and "error: " not in said and suffix != ".zip")
    return {
        "name": f"{command[0]} {command[-1]} {suffix}: {name}",
        "seconds": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss >> 10,
        "said": " / ".join([*touched, *said.splitlines()[-6:]])[:400],
        "opened": status == 0,
        "touched": bool(touched),
        "read": read,
        "raw": bool(raw or RAW.search(said)),
        "code": handwritten.SCRIPT in exported
        or any(c.lstrip('"').startswith(("=", "@", "\t", "-1+")) for c in cells),
    }


def main() -> int:
    parser = common.options(__doc__, samples=False, repeats=0)
    parser.add_argument("--mutated", type=int, default=100, metavar="N", help="so many, too")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of what is mutated")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = with_import_root(os.environ.get("PYTHONPATH", ""))
    chosen = handwritten.crafted() + mutated.mutated(args.mutated, args.seed)
    rows, start = [], {}
    with tempfile.TemporaryDirectory() as where, ThreadPoolExecutor(2) as pool:
        model = Path(where, "honest.pt")
        model.write_bytes(hostile.honest(".pt"))
        hostile.honest(".pt2")  # torch exports in one thread at a time
        for index, (suffix, command) in enumerate({(c[1], c[3]) for c in chosen}):
            honest: Case = ("honest", suffix, handwritten.honest(suffix, command), command)
            one = opened(honest, "sandboxed", Path(where, f"honest{index}"), model)
            if not one["opened"]:
                raise SystemExit(f"{one['name']} is refused: {one['said']}")
            empty: Case = ("empty", suffix, lambda folder: b"", command)
            if suffix != ".zip":  # over which no engine starts where it is empty
                one = opened(empty, "sandboxed", Path(where, f"empty{index}"), model)
            start[suffix, command] = one["seconds"]
        for mode in MODES:
            before, count = set(os.listdir("/dev/shm")), len(chosen)
            places = [Path(where, f"{mode}{i}") for i in range(count)]
            results = [*pool.map(opened, chosen, [mode] * count, places, [model] * count)]
            for (_, suffix, _, command), one in zip(chosen, results, strict=True):
                one["seconds"] -= start[suffix, command]
                one["over 10 s"], one["over 2 GiB"] = one["seconds"] > 10, one["memory"] > 2048
                wrong = ", ".join(n for n in BARS if one[n])
                if wrong:
                    print(f"{mode}, {one['name']}, {one['seconds']:.1f} s: {wrong}: {one['said']}")
            figures = {n: sum(one[n] for one in results) for n in ("opened", *BARS)}
            figures["touched"] += len(set(os.listdir("/dev/shm")) - before)
            longest = round(max(one["seconds"] for one in results), 1)
            most = {"longest s": longest, "most MiB": max(one["memory"] for one in results)}
            rows.append({"sample": mode, "files": count, **figures, **most})
    return common.finish(args, rows, lambda row: [f"{row[n]} {n}" for n in BARS if row[n]])


if __name__ == "__main__":
    sys.exit(main())
