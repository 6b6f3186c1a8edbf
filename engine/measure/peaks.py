"""What a machine does at best: FLOPs per second, and bytes per second from memory and caches.

PyTorch measures it with its own threads in a second or two. The best of several rounds counts; a
busy machine takes more rounds."""

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from relascope.engine.building.cpu import machine
from relascope.engine.measure.memory import waiter
from relascope.engine.measure.timing import Work, timed
from relascope.engine.protocol.profile import Peaks
from relascope.engine.turns import alone

_ROUNDS = 4
_BUDGET_SECONDS = 1.5
"""How long rounds may go on while each is better than all before."""
_BETTER = 1.02
_BLOCK_SECONDS = 3e-3
"""Quicker work is done several times in a row."""
_SMALLEST = 2**18
_COPIED = 2**25
_LEAST_LARGEST = 2**28
_MOST_LARGEST = 2**31
_SIDES = {"cpu": (1024, 4096), "cuda": (4096, 16384)}
"""Rows of the matrices in the timed product: at first, and if these turn out too quick."""
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_TYPES = ("float32", "float64", "float16", "bfloat16")


@alone()
def measure(name: str, dtypes: Iterable[str]) -> Peaks:
    """Measure the peaks of a device with PyTorch's current number of threads, for floating `dtypes`
    such as "float32"; others are left out."""
    began = time.perf_counter()
    device = torch.device(name)
    wait = waiter(device)
    names = [d for d in dict.fromkeys(dtypes) if d in _TYPES]
    with torch.no_grad():
        products = {name: _product(device, getattr(torch, name), wait) for name in names}
        moves, copies = _moves(device), _copies(device)
        work: dict[Any, tuple[float, Work]] = {**products, **moves, **copies}
        best = _best(work, wait)
    sizes = sorted({size for size, _ in moves})
    rates = [max(best[key] for key in moves if key[0] >= size) for size in sizes]
    flops, bandwidth = tuple((n, best[n]) for n in names), tuple(zip(sizes, rates, strict=True))
    about = machine(), torch.get_num_threads()
    if device.type != "cpu":
        about = torch.cuda.get_device_name(device), 0
    copy = min(best[key] for key in copies)
    return Peaks(*about, flops, bandwidth, time.perf_counter() - began, copy)


def _best(work: dict[Any, tuple[float, Work]], wait: Work) -> dict[Any, float]:
    """The best rate of each: FLOPs or bytes per second."""
    best = dict.fromkeys(work, 0.0)
    turns = {key: _turns(run, wait) for key, (_, run) in work.items()}
    first, rounds, better = time.perf_counter(), 0, True
    while rounds < _ROUNDS or (better and time.perf_counter() - first < _BUDGET_SECONDS):
        rounds, better = rounds + 1, False
        for key, (amount, run) in work.items():
            began = time.perf_counter()
            for _ in range(turns[key]):
                run()
            wait()
            rate = turns[key] * amount / (time.perf_counter() - began)
            better = better or rate > _BETTER * best[key]
            best[key] = max(best[key], rate)
    return best


def _turns(run: Work, wait: Work) -> int:
    timed(run, wait)
    return max(1, min(1000, round(_BLOCK_SECONDS / max(timed(run, wait), 1e-9))))


def _product(device: torch.device, dtype: torch.dtype, wait: Work) -> tuple[float, Work]:
    small, large = _SIDES["cuda" if device.type == "cuda" else "cpu"]
    for side in (small, large):
        a, b = (torch.ones(side, side, dtype=dtype, device=device) for _ in range(2))
        run = partial(torch.mm, a, b, out=torch.empty_like(a))
        if _turns(run, wait) == 1:  # it takes long enough to be timed
            break
    return 2.0 * side**3, run


def _moves(device: torch.device) -> dict[tuple[int, str], tuple[float, Work]]:
    """By working set and kind, bytes read and written, and the work: reading, copying, or adding
    two arrays to a third; which is quickest differs between machines."""
    largest = _largest(device)
    held = torch.ones(largest // 4, dtype=torch.float32, device=device)
    found: dict[tuple[int, str], tuple[float, Work]] = {}
    size = _SMALLEST
    while size <= largest:
        floats = held[: size // 4]
        half, third = floats.numel() // 2, floats.numel() // 3
        a, b, c = (floats[i * third : (i + 1) * third] for i in range(3))
        x, y = floats[:half], floats[half : 2 * half]
        found[size, "read"] = float(size), floats.sum
        found[size, "copy"] = 8.0 * half, partial(y.copy_, x)
        found[size, "triad"] = 12.0 * third, partial(torch.add, a, b, alpha=0.5, out=c)
        size *= 2
    return found


def _copies(device: torch.device) -> dict[str, tuple[float, Work]]:
    """Copies to pinned memory of the host, and back; on the CPU, to another part of its memory."""
    ours = torch.ones(_COPIED, dtype=torch.uint8, device=device)
    host = torch.ones(_COPIED, dtype=torch.uint8, pin_memory=device.type == "cuda")
    pairs = {"to the host": (host, ours), "from the host": (ours, host)}
    return {name: (_COPIED, partial(to.copy_, of)) for name, (to, of) in pairs.items()}


def _largest(device: torch.device) -> int:
    """A working set that no cache of the machine holds."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    texts = [f.read_text().strip() for f in _CACHES.glob("index*/size")]
    cache = max((int(t[:-1]) * units[t[-1]] for t in texts if t[-1:] in units), default=0)
    if device.type == "cuda":
        cache = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
    largest = _LEAST_LARGEST
    while largest < min(4 * cache, _MOST_LARGEST):
        largest *= 2
    return largest
