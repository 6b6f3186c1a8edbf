"""Honest files with something changed at random, for whatever opens a file as a person does."""

import random
import re
import struct
from functools import partial

import hostile
from handwritten import GRAPH, RELAY, REPLAY, SAVED, honest

_PROGRAMS = dict.fromkeys((".relay", ".relay.json", ".relay.tar"), RELAY)
_PROGRAMS |= dict.fromkeys((".py", ".relax.json", ".relax.tar"), GRAPH)
_COMMANDS = {".pt": GRAPH, ".pt2": GRAPH, ".onnx": GRAPH, ".zip": REPLAY, **_PROGRAMS}
_COMMANDS |= dict.fromkeys((".npy", ".npz", ".safetensors"), SAVED)


def mutated(count, seed):
    """So many files, as `handwritten.crafted` has them, of any kind; the same for the same seed."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        kind, own = rng.choice([*_COMMANDS]), rng.random()
        make = partial(_mutated, own, kind)
        found.append((f"mutated {number}", kind, make, _COMMANDS[kind]))
    return found


def _mutated(seed, kind, folder):
    """Bytes changed anywhere, or in a member that is packed anew."""
    rng = random.Random(seed)
    data = honest(kind, _COMMANDS[kind])(folder)
    if kind in _PROGRAMS:  # most of them stay text
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = rng.choice((_bytes, _number, _number, _words, _words))(rng, data)
        return data
    if rng.random() < 0.3 or kind == ".onnx":
        return _bytes(rng, data)
    if data[:2] != b"PK":
        return rng.choice((_bytes, _number, _words))(rng, data)
    parts = hostile.members(data)
    # Tensors take most of a file; what is read as more than numbers is what is worth changing.
    dull = re.compile(r"/\d+$|weight_|serialization_id|^model$")
    names = [n for n in parts if not dull.search(n)] * 9 + [*parts]
    for _ in range(rng.choice((1, 1, 2, 4))):
        name = rng.choice(names)
        change = rng.choice((_bytes, _bytes, _number, _words, _words))
        if name in parts:
            parts[name] = change(rng, parts[name])
    if rng.random() < 0.05:
        parts.pop(rng.choice([*parts]))
    if rng.random() < 0.05:
        parts[rng.choice([*parts]) + rng.choice(("", "x", "/0"))] = rng.randbytes(rng.randrange(99))
    folder = "" if kind in (".zip", ".npz") else "archive"
    return hostile.packed(parts, rng.choice((0, 0, 8)), folder)


def _bytes(rng, data):
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


def _number(rng, data):
    """A number of a text or a pickle made another."""
    found = [*re.finditer(rb"(?<![\w.])-?\d+(?:\.\d+)?|[KMJ][\0-\x20]{1,4}", data)]
    if not found:
        return data
    one = rng.choice(found)
    put = str(rng.choice((*_NUMBERS, "NaN", "null", "true", '"a"', "[]"))).encode()
    if one[0][:1] in b"KMJ":
        put = b"J" + struct.pack("<i", rng.choice([n for n in _NUMBERS[:8] if abs(n) < 2**31]))
    return data[: one.start()] + put + data[one.end() :]


def _words(rng, data):
    """A word put in another's place, left out, or said twice."""
    found = [*re.finditer(rb"\w+|[^\w\s]", data)]
    if len(found) < 2:
        return data
    one, other = rng.choice(found), rng.choice(found)
    put = rng.choice((other[0], b"", one[0] * 2, one[0] + other[0], b"self", b"None", b"__init__"))
    return data[: one.start()] + put + data[one.end() :]
