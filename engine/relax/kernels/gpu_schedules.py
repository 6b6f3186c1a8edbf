"""DLight's schedules in Relax's pipeline for a GPU, kernel by kernel.

TVM's pass applies the first of DLight's rules that matches, and fails if that fails; here the next
rules are tried. Rules that would idle most of a warp are skipped, as are rules for sums if the sums
are short, such as a depthwise convolution's. The kernel keeps the rule's name.
"""

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from relascope.core.errors import EngineError
from relascope.engine.building.options import UNDER_WAY

RULE = "relascope.schedule"
"""The attribute of a kernel that names the rule that scheduled it."""

SUMMED = "Fallback, each sum by one thread"
"""Its value for a kernel with sums to which no rule for sums applied."""

_WARP = 32
_THREADS = 256
"""Threads in a block in which each computes an element: DLight uses as many as the GPU allows, and
then a small tensor keeps only a few of the GPU's processors busy."""

_TOGETHER = tvm.transform.Sequential(
    [s_tir.transform.CanonicalizeLoop(), s_tir.transform.LowerCrossThreadReduction()]
)
"""The first steps of lowering, which fail if TVM does not know how threads compute something
together, such as the places of maxima in a pooling's gradient. They take 1 % of a rule's time."""


def schedule_on_gpu(faults: list[EngineError]) -> Any:
    """A pass that schedules every unscheduled kernel of a module. `faults` gets the error of a
    kernel without threads, because TVM raises another: TVM would run its loops on the host, with
    addresses in the GPU's memory, and crash the process."""

    @tvm.transform.module_pass(opt_level=0, name="relascope.schedule_on_gpu")
    def run(mod: Any, context: Any) -> Any:
        made = dict(mod.functions.items())
        for name, function in made.items():
            known = getattr(function, "attrs", None) or {}
            done = known.get("tirx.is_scheduled", False) or known.get("tirx.is_host_func", False)
            if not isinstance(function, tirx.PrimFunc) or done:
                continue
            UNDER_WAY.kernel(str(name.name_hint))
            made[name] = _scheduled(function)
            if not _threads(made[name]) and not extents(function):
                kernel = str(name.name_hint)
                message = f"TVM has no GPU kernel for {kernel}."
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
                with tvm.transform.PassContext():  # instruments of the build do not see the trials
                    _TOGETHER(schedule.mod)
        except Exception:  # whatever the failure, the rule does not suit this kernel
            if isinstance(rule, gpu.Matmul):  # nor do rules for rows: a product also has columns
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
    """The threads in a block of a scheduled kernel; the fewest if it has several loops."""
    extents: dict[str, int] = {}

    def see(loop: Any) -> None:
        tag = str(loop.thread_binding.thread_tag) if loop.thread_binding is not None else ""
        if tag.startswith("threadIdx") and isinstance(loop.extent, tirx.IntImm):
            extents[tag] = min(int(loop.extent), extents.get(tag, int(loop.extent)))

    tvm_ffi.structural_walk(function.body, [(tirx.For, see)], order="post")
    return math.prod(extents.values()) if extents else 0


def extents(function: Any) -> dict[str, int]:
    """The extent of each axis of a kernel's grid, if it is lowered or launches its threads itself,
    as TVM's sorts and scans do."""
    found: dict[str, int] = {}

    def see(node: Any) -> None:
        if node.attr_key == "thread_extent" and isinstance(node.value, tirx.IntImm):
            found[str(node.node.thread_tag)] = int(node.value)

    if isinstance(function, tirx.PrimFunc):
        tvm_ffi.structural_walk(function.body, [(tirx.AttrStmt, see)], order="post")
    return found


def _sums(function: Any) -> list[float]:
    """How many elements each reducing loop nest of a kernel combines."""
    found: list[float] = []

    def see(block: Any) -> None:
        if block.init is not None:
            axes = [v.dom.extent for v in block.iter_vars if v.iter_type == v.CommReduce]
            known = (int(e) if isinstance(e, tirx.IntImm) else math.inf for e in axes)
            found.append(math.prod(known))

    tvm_ffi.structural_walk(function.body, [(s_tir.SBlock, see)], order="post")
    return found
