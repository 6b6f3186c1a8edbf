"""Build kernels with their best record: a schedule, in TVM's own form, that tuning kept."""

import base64
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.s_tir import meta_schedule as ms

from relascope.core.errors import EngineError
from relascope.engine.building.options import TuningRecords
from relascope.engine.files.tvm_json import check_relax_json
from relascope.engine.protocol import records
from relascope.engine.protocol.records import SCHEDULES, WORKLOAD
from relascope.engine.relax.building.kernel_tasks import bare, key_of, library_kernel, stages
from relascope.engine.relax.kernels.gpu_schedules import schedule_on_gpu
from relascope.engine.relax.kernels.schedules import schedule_kernels


def taking(tuned: TuningRecords) -> Callable[[str], bool]:
    """Which tasks are built with their best record."""
    if tuned.always:
        return lambda key: True
    return functools.cache(records.read(tuned.place).takes)


def pipeline(
    target: Any, ours: bool, records: TuningRecords | None, faults: list[EngineError]
) -> Any:
    """TVM's pipeline for a target. Kernels with a record are scheduled by it, the others by DLight
    on a GPU (`kernels.gpu_schedules`) and by us on a CPU if `ours`. `faults` gets what is wrong
    with a record, because TVM's own error does not say it."""

    on_gpu = "gpu" in target.keys and "adreno" not in target.keys
    if records is None and not ours and not on_gpu:
        return relax.get_default_pipeline(target)

    @tvm.transform.module_pass(opt_level=0, name="relascope.pipeline")
    def run(mod: Any, context: Any) -> Any:
        fusing, theirs, lowering = stages(target)
        known = [] if records is None else [by_records(records, faults)]
        scheduling = [schedule_kernels] if ours else [schedule_on_gpu(faults)] if on_gpu else theirs
        steps = [*fusing, *known, *scheduling, *lowering]
        with target:
            return tvm.transform.Sequential(steps)(mod)

    return run


def instead_of_library(mod: Any, records: TuningRecords) -> Any:
    """A module with a kernel of TVM's in place of each library call that a record beats."""
    rewriter = _RecordRewriter(mod)
    rewriter.takes = taking(records)
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


def by_records(records: TuningRecords, faults: list[EngineError]) -> Any:
    """A pass that schedules the kernels with a record; `faults` as of `pipeline`."""

    @tvm.transform.module_pass(opt_level=0, name="relascope.schedule_by_records")
    def run(mod: Any, context: Any) -> Any:
        takes = taking(records)
        made = dict(mod.functions.items())
        try:
            for name, function in made.items():
                if isinstance(function, tirx.PrimFunc):
                    made[name] = _scheduled(function, records.place, takes)
        except EngineError as wrong:
            faults.append(wrong)
            raise
        return tvm.IRModule(made, attrs=mod.attrs)

    return run


def _scheduled(function: Any, place: Path, takes: Callable[[str], bool]) -> Any:
    """A kernel scheduled by its best record, or unchanged if no record is to be used."""
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


def recorded_workload(place: Path, mod: Any) -> Any:
    """The kernel of a task's records, or this one if there are none, as TVM's workload.

    Both compute the same, but records name a kernel's steps, which differ between programs. Raises
    EngineError of kind "file" if the records are of another kernel.
    """
    for shash, packed in records.checked(place / WORKLOAD):
        # The text follows its length in eight bytes.
        text = base64.b64decode(packed)[8:].decode(errors="replace")
        checked = check_relax_json(text, WORKLOAD, kernels=True).encode()
        packed = base64.b64encode(len(checked).to_bytes(8, "little") + checked).decode()
        found = ms.database.Workload.from_json([shash, packed])
        if not tvm_ffi.structural_equal(found.mod, mod):
            hint = "Delete this folder, and tune the kernel again."
            raise EngineError(
                "file", "This folder has records of another kernel.", str(place), hint
            )
        return found
    return ms.database.Workload(mod)


def stored(place: Path, workload: Any) -> list[Any]:
    """TVM's records of a task for its `recorded_workload`, without unfinished lines."""
    found = []
    for _, record in records.checked(place / SCHEDULES):
        for _, _, attributes, _ in record[0][0]:
            for text in attributes:  # maps of indices are TVM's JSON in a text
                if isinstance(text, str) and "{" in text:
                    check_relax_json(text, SCHEDULES, kernels=True)
        found.append(ms.database.TuningRecord.from_json(record, workload))
    return found


def best(place: Path, mod: Any) -> Any | None:
    """TVM's record of a kernel's fastest schedule, or None. Raises EngineError as
    `recorded_workload` does."""
    found = stored(place, recorded_workload(place, mod))
    return min(found, key=lambda r: min(float(s) for s in r.run_secs), default=None)
