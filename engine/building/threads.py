"""How many threads TVM and PyTorch use, and whose: PyTorch's for both.

After a kernel, PyTorch's threads spin for some milliseconds, on the cores that TVM's own threads
would need; and TVM's sleep after each loop, and wake slowly. Code that TVM compiled looks up
`TVMBackendParallelLaunch` when it is loaded: each engine puts the address of `@launch` there.

An import sets variables that TVM reads when it makes threads of its own: if PyTorch has no OpenMP.
"""

import ctypes
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# By default TVM's threads are tied to cores that torch's threads use too.
os.environ.setdefault("TVM_BIND_THREADS", "0")
# The most that there may ever be; `set_threads` takes some of them. TVM's own default may be one.
os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))
# Its threads would otherwise spin for the next kernel, on the cores that PyTorch's BLAS works on.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")

_ANY_CORE = 0  # threads are not tied to a kind of core

LAUNCH = "TVMBackendParallelLaunch"
ENTRY = "openmp_table"
"""A packed function that returns `ADDRESS`; each engine writes it in its TVM's convention."""
ADDRESS = "i64 ptrtoint (%table @table to i64)"

_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_POINTERS = {
    "word": "i64*",
    "count": "i32*",
    "job": "%Job*",
    "table": "%Table*",
    "body": "i32 (i32, i64, i64)*",
    "number": "i32 ()*",
    "team": "void (i64, i64, i32, i32)*",
    "launch": "i32 (i64, i64, i32)*",
    "work": "void (i64)*",
}
_CODE = """
; A loop's body, its data, TVM's `TVMParallelGroupEnv` (a handle that is not used, and the number of
; tasks), and what a body that failed returned.
%Job = type { i64, i64, i64, i64, i32 }
; The function below, three of OpenMP's, and the number of threads.
%Table = type { i64, i64, i64, i64, i32 }
@table = global %Table { i64 ptrtoint (%launch @launch to i64), i64 0, i64 0, i64 0, i32 1 }

define i32 @launch(i64 %body, i64 %data, i32 %asked) {
  %threads.at = getelementptr %Table, %table @table, i32 0, i32 4
  %threads = load i32, %count %threads.at
  %all = icmp eq i32 %asked, 0
  %tasks = select i1 %all, i32 %threads, i32 %asked
  %tasks.wide = zext i32 %tasks to i64
  %job = alloca %Job
  %body.at = getelementptr %Job, %job %job, i32 0, i32 0
  store i64 %body, %word %body.at
  %data.at = getelementptr %Job, %job %job, i32 0, i32 1
  store i64 %data, %word %data.at
  %handle.at = getelementptr %Job, %job %job, i32 0, i32 2
  store i64 0, %word %handle.at
  %tasks.at = getelementptr %Job, %job %job, i32 0, i32 3
  store i64 %tasks.wide, %word %tasks.at
  %error.at = getelementptr %Job, %job %job, i32 0, i32 4
  store i32 0, %count %error.at
  %team.at = getelementptr %Table, %table @table, i32 0, i32 1
  %team.of = load i64, %word %team.at
  %team = inttoptr i64 %team.of to %team
  %given = ptrtoint %job %job to i64
  call void %team(i64 ptrtoint (%work @work to i64), i64 %given, i32 %tasks, i32 0)
  %error = load i32, %count %error.at
  ret i32 %error
}

; The work of each thread of the team: one task if there are as many threads, else several in turn.
define void @work(i64 %given) {
start:
  %job = inttoptr i64 %given to %job
  %body.at = getelementptr %Job, %job %job, i32 0, i32 0
  %body.of = load i64, %word %body.at
  %body = inttoptr i64 %body.of to %body
  %data.at = getelementptr %Job, %job %job, i32 0, i32 1
  %data = load i64, %word %data.at
  %environment = add i64 %given, 16
  %tasks.at = getelementptr %Job, %job %job, i32 0, i32 3
  %tasks.wide = load i64, %word %tasks.at
  %tasks = trunc i64 %tasks.wide to i32
  %error.at = getelementptr %Job, %job %job, i32 0, i32 4
  %first.at = getelementptr %Table, %table @table, i32 0, i32 2
  %first.of = load i64, %word %first.at
  %first.number = inttoptr i64 %first.of to %number
  %first = call i32 %first.number()
  %step.at = getelementptr %Table, %table @table, i32 0, i32 3
  %step.of = load i64, %word %step.at
  %step.number = inttoptr i64 %step.of to %number
  %step = call i32 %step.number()
  br label %next
next:
  %task = phi i32 [ %first, %start ], [ %later, %run ], [ %later, %failed ]
  %more = icmp slt i32 %task, %tasks
  br i1 %more, label %run, label %end
run:
  %error = call i32 %body(i32 %task, i64 %environment, i64 %data)
  %later = add i32 %task, %step
  %right = icmp eq i32 %error, 0
  br i1 %right, label %next, label %failed
failed:
  store i32 %error, %count %error.at
  br label %next
end:
  ret void
}
"""


class _Table(ctypes.Structure):
    _fields_ = (
        ("launch", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in _OPENMP),
        ("threads", ctypes.c_int32),
    )


class Team:
    """The threads of PyTorch's OpenMP, on which TVM launches its parallel loops."""

    def __init__(self) -> None:
        self._table: _Table | None = None
        self._module: Any = None  # whose code it is: unloaded without it

    def launcher(self, load: Callable[[str], Any], target: str, entry: str) -> int | None:
        """The address of a function that does what `LAUNCH` does. `load` loads a file of LLVM text
        as a TVM module, `target` is LLVM text that TVM compiled for this machine, and `entry` is
        the text of `ENTRY`. None if this PyTorch has no OpenMP: then TVM keeps its own threads."""
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
        if not all(hasattr(library, name) for name in _OPENMP):
            return None
        about = [line for line in target.splitlines() if line.startswith("target ")]
        typed = "i8*" in target  # LLVM's pointers lost their types in its version 15
        pointers = [f"%{n} = type {t if typed else 'ptr'}" for n, t in _POINTERS.items()]
        with tempfile.NamedTemporaryFile("w", suffix=".ll") as file:
            file.write("\n".join([*about, *pointers, _CODE, entry]))
            file.flush()
            self._module = load(file.name)
        self._table = _Table.from_address(int(self._module[ENTRY]()))
        for name in _OPENMP:
            setattr(self._table, name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
        return self._table.launch

    def set_threads(self, threads: int) -> None:
        """Launch this many tasks from now on, if a loop does not name a number."""
        if self._table is not None:
            self._table.threads = threads


TEAM = Team()


def set_threads(threads: int) -> None:
    """Let TVM and PyTorch both use this many threads; 0 means one for each processor."""
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    use_torch_threads()


def use_torch_threads() -> None:
    """Let TVM use as many threads as PyTorch does, in functions called from this thread."""
    import tvm  # the one that this process's engine has loaded

    tvm.get_global_func("runtime.config_threadpool")(_ANY_CORE, torch.get_num_threads())
    TEAM.set_threads(torch.get_num_threads())
