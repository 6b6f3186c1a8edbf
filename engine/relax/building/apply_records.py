"""Building kernels with their best record: schedules that tuning found and kept."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from relascope.core.errors import EngineError
from relascope.engine.building.options import TuningRecords
from relascope.engine.protocol import records
from relascope.engine.relax.building.kernel_tasks import bare, key_of, library_kernel, stages
from relascope.engine.relax.building.records import best
from relascope.engine.relax.kernels.gpu_schedules import schedule_on_gpu
from relascope.engine.relax.kernels.schedules import schedule_kernels


def taking(found: TuningRecords) -> Callable[[str], bool]:
    """Which tasks are built with their best record."""
    if found.always:
        return lambda key: True
    return functools.cache(records.read(found.place).takes)


def pipeline(
    target: Any, ours: bool, found: TuningRecords | None, faults: list[EngineError]
) -> Any:
    """TVM's pipeline for a target, where kernels with a record are scheduled by it.

    On a GPU the others are scheduled by DLight, see `kernels.gpu_schedules`.

    Args:
        ours: whether our schedules do the others, on a CPU.
        faults: gets what is wrong with a record; TVM then raises an error without these words.
    """

    on_gpu = "gpu" in target.keys and "adreno" not in target.keys
    if found is None and not ours and not on_gpu:
        return relax.get_default_pipeline(target)

    @tvm.transform.module_pass(opt_level=0, name="relascope.pipeline")
    def run(mod: Any, context: Any) -> Any:
        parts = stages(target)
        known = [] if found is None else [by_records(found, faults)]
        theirs = [schedule_on_gpu] if on_gpu else list(parts.scheduling)
        scheduling = [schedule_kernels] if ours else theirs
        steps = [*parts.fusing, *known, *scheduling, *parts.lowering]
        with target:
            return tvm.transform.Sequential(steps)(mod)

    return run


def instead_of_library(mod: Any, found: TuningRecords) -> Any:
    """A module in which the calls of a library that a record beats call a kernel of TVM's."""
    rewriter = _RecordRewriter(mod)
    rewriter.takes = taking(found)
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(name, rewriter.visit_expr(function))
    return rewriter.builder_.get()


@mutator
class _RecordRewriter(PyExprMutator):
    takes: Callable[[str], bool]

    def visit_call_(self, call: Any) -> Any:
        made = self.visit_expr_post_order(call)
        function = library_kernel(made)
        if function is None or not self.takes(key_of(bare(function))):
            return made
        kernel = self.builder_.add_func(function, "tuned_matmul")
        return relax.call_tir(kernel, made.args[1], made.ty)


def by_records(found: TuningRecords, faults: list[EngineError]) -> Any:
    """A pass that schedules the kernels with a record; `faults` as of `pipeline`."""

    @tvm.transform.module_pass(opt_level=0, name="relascope.schedule_by_records")
    def run(mod: Any, context: Any) -> Any:
        takes = taking(found)
        made = dict(mod.functions.items())
        try:
            for name, function in made.items():
                if isinstance(function, tirx.PrimFunc):
                    made[name] = _scheduled(function, found.place, takes)
        except EngineError as wrong:
            faults.append(wrong)
            raise
        return tvm.IRModule(made, attrs=mod.attrs)

    return run


def _scheduled(function: Any, place: Path, takes: Callable[[str], bool]) -> Any:
    """A kernel by its best record; as it is where none is to be taken."""
    if function.attrs.get("tirx.is_scheduled", False):
        return function
    mod = bare(function)
    key = key_of(mod)
    if not takes(key):
        return function
    record = best(place / key, mod)
    if record is None:
        return function
    sch = s_tir.Schedule(record.workload.mod)
    record.trace.apply_to_schedule(sch, remove_postproc=False)
    plain = s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(sch.mod)
    attrs = {**dict(plain["main"].attrs), **dict(function.attrs), "tirx.is_scheduled": True}
    return plain["main"].without_attr("global_symbol").with_attrs(attrs)
