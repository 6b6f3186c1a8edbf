"""How a GPU runs the kernels of a build: blocks, threads, the memory that a block shares.

Launches are read from the loops that TVM compiles, registers from the object file.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from relascope.engine.building import elf, kernel_code
from relascope.engine.protocol.artefact import KernelCode, Launch

_WARP = 32
_LIMITS = {"cuda": (1024, 48 * 1024)}
"""The most threads of a block, and the most bytes that they may share if that size is fixed."""


@dataclass
class Launches:
    """Watches TVM's passes to find how each function on a GPU is launched. For a function,
    `extents` returns the length of each axis of the grid, such as "blockIdx.x", and `shared` the
    bytes of each tensor that a block shares; `schedule` names the rule that made the function's
    schedule, or returns ""."""

    extents: Callable[[Any], Mapping[str, int]]
    shared: Callable[[Any], Iterable[int]]
    schedule: Callable[[Any], str] = lambda function: ""
    launches: dict[str, Launch] = field(default_factory=dict, init=False)

    def instrument(self, decorate: Callable[[type], type]) -> Any:
        """What TVM calls after each pass."""

        def run_after_pass(_: Any, mod: Any, info: Any) -> None:
            if str(info.name).endswith(".SplitHostDevice"):
                self._see({str(n.name_hint): f for n, f in mod.functions.items()})

        return decorate(type("Launches", (), {"run_after_pass": run_after_pass}))()

    def _see(self, functions: Mapping[str, Any]) -> None:
        for name, function in functions.items():
            extents = self.extents(function)
            if not extents:
                continue
            blocks, threads = (
                math.prod(e for axis, e in extents.items() if axis.startswith(kind))
                for kind in ("blockIdx", "threadIdx")
            )
            owner = functions.get(kernel_code.owner(name, functions))
            rule = "" if owner is None else self.schedule(owner)
            self.launches[name] = Launch(name, blocks, threads, sum(self.shared(function)), rule)


def compiled(launch: Launch, use: elf.RegisterUse | None) -> Launch:
    if use is None:
        return launch
    return replace(launch, registers=use.count, spilled_bytes=use.spilled_bytes)


def notes(kernels: Sequence[KernelCode], kind: str) -> Iterator[str]:
    """Sentences on kernels that use a GPU badly, or ask for more than it has."""
    found = [launch for kernel in kernels for launch in kernel.launches]
    threads, shared = _LIMITS.get(kind, (math.inf, math.inf))
    about: dict[str, Callable[[Launch], object]] = {
        "have one thread per block, which leaves most of the GPU idle": lambda x: x.threads == 1,
        f"have fewer threads per block than the {_WARP} that a GPU runs at a time": lambda x: (
            1 < x.threads < _WARP and x.blocks > 1
        ),
        "are scheduled by DLight's last rule, because no other takes their sums: one thread "
        "computes each sum": lambda x: x.schedule.endswith("by one thread"),
        "have more threads per block than this GPU allows, and will not run": lambda x: (
            x.threads > threads
        ),
        f"share more than the {shared / 1024:g} KiB of a block, and will not run": lambda x: (
            x.shared_bytes > shared
        ),
        "spill registers to memory": lambda x: x.spilled_bytes,
    }
    for words, applies in about.items():
        names = [launch.name for launch in found if applies(launch)]
        if names:
            listed = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if names[6:] else "")
            yield f"{len(names)} of {len(found)} functions on the GPU {words}: {listed}."
