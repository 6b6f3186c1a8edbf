"""Tuning as plain data: tasks, measurements and results.

A task is a kernel with its shapes; equal kernels of all programs are one. Every measurement of a
schedule is kept (`engine.protocol.records`), and a build for a target with `RECORDS` uses the best.
"""

from dataclasses import dataclass

from relascope.core.graph import TensorType

RECORDS = "-records=relascope"
"""The option of a target, ours, that builds kernels with their best record."""


@dataclass(frozen=True)
class TuneTask:
    """A kernel that can be tuned, and what is known about it.

    `key` names the task, in every program and on every target, and a file; `name` is the kernel's
    symbol, for people; `arguments` are what it reads and writes, in order; `nodes` the ids of the
    nodes that its calls compute, in graph order, of the joint graph if split. `calls` is how often
    the program calls it, `flops` those of one call, where TVM can count them. `share` is the
    fraction of all kernels' time, with the present records; None where the program cannot run here.

    `before_ms` is the time of a call without records, measured in tuning or by running the program;
    None where neither is possible. `best_ms` is the same with its best record, measured in turn
    where possible; None without one. `trials` counts measurements on disk, failed ones included.
    `uses_record` says whether a build with `RECORDS` takes the best record: nothing known is
    faster."""

    key: str
    name: str
    arguments: tuple[TensorType, ...]
    nodes: tuple[str, ...]
    calls: int
    flops: float | None
    share: float | None
    before_ms: float | None
    best_ms: float | None
    trials: int
    uses_record: bool


@dataclass(frozen=True)
class Tuned:
    """What a call of `tune` did for one task; times in milliseconds of one call of the kernel.
    `trials` counts the measurements of this call, `failed` those without a time. `before_ms` is the
    last time without records, None where that cannot be measured; `earlier_ms` is with the best
    record before this call, and `best_ms` with the best now, None without one. `uses_record` is as
    in a `TuneTask`."""

    key: str
    name: str
    trials: int
    failed: int
    before_ms: float | None
    earlier_ms: float | None
    best_ms: float | None
    uses_record: bool


@dataclass(frozen=True)
class TuneResult:
    """What a call of `tune` did. `run` is the id of its measurements in the records, `folder` the
    folder of this target's records, `threads` what kernels were measured with; `notes` are
    sentences for people."""

    run: str
    folder: str
    machine: str
    target: str
    threads: int
    tasks: tuple[Tuned, ...]
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One measurement of one schedule of a task, by the task's key. `run` is an id of the call of
    `tune` that made it, and `trial` the task's count of measurements, over all runs, from 1. `ms`
    is of one call of the kernel, None where the schedule could not be built or run, and `best_ms`
    the least so far, with this one; None while none succeeded. `seconds` are wall time since the
    run began. `candidate` names the schedule, so that it is not measured again; `error` says why
    there is no time."""

    task: str
    run: str
    trial: int
    ms: float | None
    best_ms: float | None
    seconds: float
    candidate: str
    error: str = ""
