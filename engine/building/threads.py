"""How many threads TVM and PyTorch use: as many as each other.

What importing this sets is read when TVM makes its threads, at the first function that uses them.
"""

import os

import torch

# By default TVM's threads are tied to cores that torch's threads use too.
os.environ.setdefault("TVM_BIND_THREADS", "0")
# As many as there may ever be; `set_threads` takes some of them. TVM's own default may be one.
os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))
# Its threads would otherwise spin for the next kernel, on the cores that PyTorch's BLAS works on.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")

_ANY_CORE = 0  # threads are not tied to a kind of core


def set_threads(threads: int) -> None:
    """Let TVM and PyTorch both use so many threads; 0 means as many as there are processors."""
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    use_torch_threads()


def use_torch_threads() -> None:
    """Let TVM use as many threads as PyTorch does, in functions called from this thread."""
    import tvm  # the one that this process's engine has loaded

    tvm.get_global_func("runtime.config_threadpool")(_ANY_CORE, torch.get_num_threads())
