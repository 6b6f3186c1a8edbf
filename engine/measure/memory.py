"""The most memory that one run takes at one time.

PyTorch's allocator is measured: on the CPU by the profiler, on a GPU by its own count. TVM's
functions report their own memory (`engine.building.executables.Compiled.own_memory`)."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.profiler import profile


def waiter(device: torch.device) -> Callable[[], None]:
    """A function that waits until a device has finished its work."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return lambda: None


def waited(device: torch.device) -> str:
    """A sentence on what each time on a device includes; "" on a CPU, where calls block."""
    if device.type != "cuda":
        return ""
    return (
        "Each time ends when the GPU has finished all kernels, TVM's and PyTorch's "
        f"(torch.cuda.synchronize of {device})."
    )


def torch_peak(run: Callable[[], object], device: torch.device) -> int:
    """The most bytes that PyTorch's allocator held during a run, its result included, beyond those
    before it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device)) - int(before)
    watched = profile(profile_memory=True)
    with _quiet():
        watched.__enter__()
    try:
        result = run()
    finally:
        with _quiet():
            watched.__exit__(None, None, None)
    del result
    results: Any = watched.kineto_results  # PyTorch's stubs lack its type
    events = [e for e in results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the profiler's messages at start and stop out of the process's log."""
    log, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(log, 2)
        os.close(log)
        os.close(nowhere)
