"""DLight's schedules in Relax's pipeline for a GPU, kernel by kernel.

TVM's pass takes the first of DLight's rules that matches, and fails with it; here the next rules
have their turn. Rules that would idle most of a warp are passed over, and those for sums where sums
are short, as a depthwise convolution's. The kernel keeps the rule's name.
"""

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from relascope.core.errors import EngineError

RULE = "relascope.schedule"
"""The attribute of a kernel that names the rule it was scheduled by."""

SUMMED = "Fallback, each sum by one thread"
"""What it says of a kernel with sums that no rule for sums took."""

_WARP = 32
_THREADS = 256
"""Of a block in which each thread computes an element: DLight takes as many as the GPU allows, and
a small tensor then keeps only a few of the GPU's processors busy."""

_TOGETHER = tvm.transform.Sequential(
    [s_tir.transform.CanonicalizeLoop(), s_tir.transform.LowerCrossThreadReduction()]
)
"""The first steps of lowering, which fail where TVM does not know how threads compute something
together, as the maxima's places in a pooling's gradient. They take a hundredth of a rule's time."""


def schedule_on_gpu(faults: list[EngineError]) -> Any:
    """A pass that schedules every kernel of a module that is not scheduled yet. `faults` gets
    kernels without threads, as TVM raises an error without these words: TVM would run their loops
    on the host, with addresses of the GPU's memory, and the process ends."""

    @tvm.transform.module_pass(opt_level=0, name="relascope.schedule_on_gpu")
    def run(mod: Any, context: Any) -> Any:
        made = dict(mod.functions.items())
        for name, function in made.items():
            known = getattr(function, "attrs", None) or {}
            done = known.get("tirx.is_scheduled", False) or known.get("tirx.is_host_func", False)
            if not isinstance(function, tirx.PrimFunc) or done:
                continue
            made[name] = _scheduled(function)
            if not _threads(made[name]) and not extents(function):
                kernel = str(name.name_hint)
                message = f"TVM has no kernel of {kernel} for a GPU."
                hint = "Build with -libs=blas in the target, or for the CPU."
                faults.append(EngineError("target", message, kernel, hint))
                raise faults[0]
        return tvm.IRModule(made, attrs=mod.attrs)

    return run


def _scheduled(function: Any) -> Any:
    target = function.attrs.get("target") or tvm.target.Target.current(allow_none=False)
    gpu, sums = dlight.gpu, _sums(function)
    short = len(sums) == 1 and sums[0] < _WARP
    for rule in (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction()):
        if short and isinstance(rule, gpu.Reduction | gpu.GeneralReduction):
            continue
        try:
            schedule = rule.apply(function, target, False)
            if schedule is not None:
                with tvm.transform.PassContext():  # whoever watches the build sees no trials
                    _TOGETHER(schedule.mod)
        except Exception:  # whatever it fails of, it is not for this kernel
            if isinstance(rule, gpu.Matmul):  # nor is a rule for rows: a product has columns, too
                break
            continue
        if schedule is not None and _threads(schedule.mod["main"]) >= _WARP:
            return _named(schedule, type(rule).__name__)
    few = tvm.target.Target({**target.export(), "max_num_threads": _THREADS})
    schedule = gpu.Fallback().apply(function, few, False)
    if schedule is None:
        return function
    return _named(schedule, SUMMED if any(s >= _WARP for s in sums) else "Fallback")


def _named(schedule: Any, rule: str) -> Any:
    return schedule.mod["main"].with_attrs({"tirx.is_scheduled": True, RULE: rule})


def _threads(function: Any) -> int:
    """How many threads a block of a kernel has that is scheduled; of several loops the fewest."""
    extents: dict[str, int] = {}

    def see(loop: Any) -> None:
        tag = str(loop.thread_binding.thread_tag) if loop.thread_binding is not None else ""
        if tag.startswith("threadIdx") and isinstance(loop.extent, tirx.IntImm):
            extents[tag] = min(int(loop.extent), extents.get(tag, int(loop.extent)))

    tvm_ffi.structural_walk(function.body, [(tirx.For, see)], order="post")
    return math.prod(extents.values()) if extents else 0


def extents(function: Any) -> dict[str, int]:
    """How far each axis of a kernel's grid goes that is lowered, or launches its threads itself, as
    TVM's sorts and scans do."""
    found: dict[str, int] = {}

    def see(node: Any) -> None:
        if node.attr_key == "thread_extent" and isinstance(node.value, tirx.IntImm):
            found[str(node.node.thread_tag)] = int(node.value)

    if isinstance(function, tirx.PrimFunc):
        tvm_ffi.structural_walk(function.body, [(tirx.AttrStmt, see)], order="post")
    return found


def _sums(function: Any) -> list[float]:
    """Of each loop nest of a kernel that reduces axes, how many elements it takes together."""
    found: list[float] = []

    def see(block: Any) -> None:
        if block.init is not None:
            axes = [v.dom.extent for v in block.iter_vars if v.iter_type == v.CommReduce]
            known = (int(e) if isinstance(e, tirx.IntImm) else math.inf for e in axes)
            found.append(math.prod(known))

    tvm_ffi.structural_walk(function.body, [(s_tir.SBlock, see)], order="post")
    return found
