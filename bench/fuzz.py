"""Open crafted and mutated files in engines, as the page does, and see what becomes of them.

Each file stands in a folder of its own, beside one that it is to overwrite, and the folder is
compared before and after. Models and modules are opened, saved tensors are read, and sessions as by
`relascope replay`, with the model in them. Time is the engine's, of the processor or of the clock,
whichever is less, so that what else the machine does is not counted; beyond a minute, the clock's.

Returns 1 where code ran or a file was touched, where one held a process for more than 10 s or 2 GiB
of memory, or where what a person would be told is no sentence: an assertion, a traceback, a place
in torch's code, or the end of the engine's process.
"""

import logging
import os
import random
import re
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from common import Row

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.limits import Usage
from relascope.engine.process import usage
from relascope.engine.protocol.source import source_from_file
from relascope.engine.sandbox import READABLE, SETTING, TRUST

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/support/crafted"))
import hostile  # isort: skip
import hostile_programs  # isort: skip

LONGEST, LARGEST = 10.0, 2 << 30
LOOK = 0.02  # s
CANARY = "canary"
RAW = re.compile(
    r"Traceback|INTERNAL ASSERT|ASSERT FAILED|frame #\d|\.cpp:|csrc/|std: ?:|c10::|pybind"
    r"|object at 0x|Exception raised|please report a bug|process (was ended|ended)|\n\s+File \""
)
KINDS = ("file", "reader", "input", "operator", "usage", "session")
FORMATS = (".pt", ".pt2", ".onnx", ".zip", *hostile.TENSORS)
PROGRAMS = {
    ".relay": "relay",
    ".relay.json": "relay",
    ".relay.tar": "relay",
    ".py": "relax",
    ".relax.json": "relax",
    ".relax.tar": "relax",
}
HANGS = 60.0  # s


@dataclass
class Outcome:
    """What became of a file: what was said, "" where it opened, and what should not have been."""

    name: str
    kind: str
    said: str
    seconds: float
    memory: int
    faults: tuple[str, ...]


class Watch:
    """How long a request holds a process, and how much memory that takes."""

    def __init__(self, client: EngineClient) -> None:
        self.client, self.memory, self.done = client, 0, False
        self.since: dict[int, Usage] = {}
        self.longest = 0.0
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self) -> None:
        while not self.done:
            # The start of a new process is none of the file's time.
            if (pid := self.client.pid) is not None and self.client._supervisor.begun:
                now = usage(pid)
                used = now - self.since.setdefault(pid, now)
                busy = min(used.wall, used.processor)
                self.longest = max(self.longest, used.wall if used.wall > HANGS else busy)
                self.memory = max(self.memory, now.memory)
            time.sleep(LOOK)

    def end(self) -> None:
        self.done = True
        self.thread.join()


def opened(client: EngineClient, name: str, suffix: str, data: bytes, place: Path) -> Outcome:
    """Open a file in an engine; `place` is a new folder for it."""
    place.mkdir()
    try:
        (place / CANARY).write_text("untouched")
        path = place / f"model{suffix}"
        path.write_bytes(data)
        watch, kind, said = Watch(client), "", ""
        try:
            if suffix in PROGRAMS:
                client.call("load", source_from_file(path))
            elif suffix in hostile.TENSORS:
                client.call("tensors", str(path))
            elif suffix == ".zip":
                client.call("replayed", str(path))
            else:
                client.call("open", source_from_file(path))
        except EngineError as error:
            kind, said = error.kind, error.message
        finally:
            watch.end()
        left = sorted(p.name for p in place.iterdir())
        touched = left != sorted([CANARY, path.name]) or (place / CANARY).read_text() != "untouched"
    finally:
        shutil.rmtree(place)
    faults = [
        *(["touched a file"] if touched else []),
        *(["time"] if watch.longest > LONGEST else []),
        *(["memory"] if watch.memory > LARGEST else []),
        *(["raw"] if kind and (kind not in KINDS or RAW.search(said) or len(said) > 1000) else []),
    ]
    return Outcome(name, kind, said, watch.longest, watch.memory, tuple(faults))


def mutated(rng: random.Random, kind: str) -> bytes:
    """An honest file with something changed: bytes anywhere, or in a member that is packed anew."""
    if kind in PROGRAMS:  # most of them stay text
        data = hostile_programs.honest(kind)
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = rng.choice((_bytes, _number, _number, _words, _words))(rng, data)
        return data
    data = hostile.honest(kind)
    if rng.random() < 0.3 or kind == ".onnx":
        return _bytes(rng, data)
    if data[:2] != b"PK":
        return rng.choice((_bytes, _number, _words))(rng, data)
    parts = hostile.members(data)
    # Tensors take most of a file; what is read as more than numbers is what is worth changing.
    names = [
        n for n in parts if not re.search(r"/\d+$|weight_|serialization_id|^model$", n)
    ] * 9 + [*parts]
    for _ in range(rng.choice((1, 1, 2, 4))):
        name = rng.choice(names)
        change = rng.choice((_bytes, _bytes, _number, _words, _words))
        if name in parts:
            parts[name] = change(rng, parts[name])
    if rng.random() < 0.05:
        parts.pop(rng.choice([*parts]))
    if rng.random() < 0.05:
        parts[rng.choice([*parts]) + rng.choice(("", "x", "/0"))] = rng.randbytes(rng.randrange(99))
    return hostile.packed(
        parts, rng.choice((0, 0, 8)), "" if kind in (".zip", ".npz") else "archive"
    )


def _bytes(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16, 64))):
        at, size = rng.randrange(len(made) + 1), rng.choice((1, 1, 1, 4, 8, 32, 512))
        how = rng.randrange(5)
        if how == 0:
            made[at : at + size] = rng.randbytes(size)
        elif how == 1:
            del made[at : at + size]
        elif how == 2:
            made[at:at] = made[at : at + size]
        elif how == 3:
            made[at : at + size] = bytes(size)
        elif at < len(made):
            made[at] ^= 1 << rng.randrange(8)
    return bytes(made[: rng.randrange(len(made) + 1)] if rng.random() < 0.05 else made)


_NUMBERS = (-1, 0, 1, 127, 255, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 10**30, 1e308)


def _number(rng: random.Random, data: bytes) -> bytes:
    """A number of a text or a pickle made another."""
    found = [*re.finditer(rb"(?<![\w.])-?\d+(?:\.\d+)?|[KMJ][\0-\x20]{1,4}", data)]
    if not found:
        return data
    one = rng.choice(found)
    put = str(rng.choice((*_NUMBERS, "NaN", "null", "true", '"a"', "[]"))).encode()
    if one[0][:1] in b"KMJ":
        put = b"J" + struct.pack("<i", rng.choice([n for n in _NUMBERS[:8] if abs(n) < 2**31]))
    return data[: one.start()] + put + data[one.end() :]


def _words(rng: random.Random, data: bytes) -> bytes:
    """A word put in another's place, left out, or said twice."""
    found = [*re.finditer(rb"\w+|[^\w\s]", data)]
    if len(found) < 2:
        return data
    one, other = rng.choice(found), rng.choice(found)
    put = rng.choice((other[0], b"", one[0] * 2, one[0] + other[0], b"self", b"None", b"__init__"))
    return data[: one.start()] + put + data[one.end() :]


def figures(outcomes: list[Outcome], what: str) -> Row:
    """How many, and what of them."""
    faults = Counter(f for o in outcomes for f in o.faults)
    return {
        "sample": what,
        "number": len(outcomes),
        "opened": sum(not o.kind for o in outcomes),
        "touched": faults["touched a file"],
        "over 2 GiB": faults["memory"],
        "over 10 s": faults["time"],
        "raw": faults["raw"],
        "longest s": round(max((o.seconds for o in outcomes), default=0.0), 1),
        "most MiB": max((o.memory for o in outcomes), default=0) >> 20,
    }


def main() -> int:
    parser = common.options(__doc__, samples=False, repeats=0)
    parser.add_argument("--mutated", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--say", action="store_true", help="what is said of each file")
    about = "what reads files holds alone"
    parser.add_argument("--no-sandbox", action="store_true", help=about)
    args = parser.parse_args()
    os.environ[SETTING] = "off" if args.no_sandbox else os.environ.get(SETTING, "")
    os.environ[TRUST] = "1" if args.no_sandbox else ""
    own = str(Path(__file__).resolve().parents[1] / "tests/support/sessions")
    os.environ["PYTHONPATH"] = os.pathsep.join([own, os.environ.get("PYTHONPATH", "")])
    crafted = hostile.crafted() + hostile.crafted_sessions() + hostile_programs.crafted()
    for kind in FORMATS:
        hostile.honest(kind)  # torch exports in one thread at a time
    formats = (*FORMATS, *PROGRAMS)
    rng = random.Random(args.seed)
    seeds = [(i, f"mutated {i}", rng.choice(formats), rng.random()) for i in range(args.mutated)]
    clients = threading.local()
    began = time.monotonic()
    logging.getLogger("relascope.engine").setLevel(logging.CRITICAL)  # each refusal is told there

    def client(kind: str) -> EngineClient:
        ir = PROGRAMS.get(kind, "")
        if not hasattr(clients, f"own{ir}"):
            session = None if ir else "opening_session:OpeningSession"
            setattr(clients, f"own{ir}", EngineClient(ir or "relax", session))
        found: EngineClient = getattr(clients, f"own{ir}")
        found.warm().result()
        return found

    with tempfile.TemporaryDirectory() as where, ThreadPoolExecutor(2) as pool:
        os.environ[READABLE] = os.path.realpath(where)  # one engine opens many files

        def run(one: tuple[int, str, str, Any]) -> Outcome:
            index, name, kind, data = one
            if not isinstance(data, bytes):
                data = mutated(random.Random(data), kind)
            place = Path(where, str(index))
            outcome = opened(client(kind), f"{name} {kind}", kind, data, place)
            if outcome.faults or args.say:
                text = outcome.said[:300].replace("\n", " / ")
                faults = ", ".join(outcome.faults)
                print(f"{outcome.name}: {faults}: {outcome.kind} {text}", flush=True)
            return outcome

        # Made before any is opened: it takes the time of those who watch.
        ready = [
            (i, name, kind, make(str(Path(where, str(i), "mark"))))
            for i, (name, kind, make) in enumerate(crafted)
        ]
        made = [*pool.map(run, ready)]
        changed = []
        for index, outcome in enumerate(pool.map(run, seeds)):
            changed.append(outcome)
            if index % 500 == 499:
                now = f"{index + 1} of {args.mutated}, {time.monotonic() - began:.0f} s"
                print(now, file=sys.stderr)
    rows = [figures(made, "crafted"), figures(changed, "mutated")]
    bars = ("touched", "over 2 GiB", "over 10 s", "raw")
    return common.finish(args, rows, lambda row: [b for b in bars if row[b]])


if __name__ == "__main__":
    sys.exit(main())
