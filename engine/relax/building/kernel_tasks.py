"""The kernels of a Relax program that can be tuned.

Each kernel that TVM makes of a fused group is a task. So is each matmul that a library computes on
this target: alone, as TVM would compute it.
"""

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, s_tir, te, tirx
from tvm.s_tir import meta_schedule as ms

from relascope.core.graph import TensorType
from relascope.engine.measure.tuner import Workload
from relascope.engine.relax.building.block_memory import least_memory, plan_memory
from relascope.engine.relax.building.split_slices import split_slices
from relascope.engine.relax.draw.to_graph import counted_flops, tensor_types
from relascope.engine.relax.kernels.blas import OPAQUE, TURNS, all_static, symbol_of


@dataclass(frozen=True)
class TaskKernel:
    """The engine's own part of a `Workload`. The kernel writes its last `results` arguments;
    `symbol` is the library function used without records, or ""."""

    mod: Any
    results: int
    symbol: str = ""


def stages(target: Any) -> tuple[tuple[Any, ...], ...]:
    """TVM's pipeline for a target: up to FuseTIR, the scheduling of kernels, and the rest."""
    kind = str(target.kind.name)
    known = {"llvm": "cpu_generic", "cuda": "cuda"}
    theirs = importlib.import_module(f"tvm.relax.backend.{known.get(kind, 'gpu_generic')}.pipeline")
    legalize = theirs.legalize_passes(target)
    # FuseOps makes no kernel of a function that reads a field of a tuple that it computes.
    after = next(i for i, p in enumerate(legalize, 1) if str(p.info.name) == "LegalizeOps")
    legalize.insert(after, relax.transform.CanonicalizeBindings())
    at = next(i for i, p in enumerate(legalize, 1) if str(p.info.name) == "FuseTIR")
    lowering, finalizing = theirs.dataflow_lower_passes(target), theirs.finalize_passes(target)
    if kind == "llvm":
        lowering.insert(1, least_memory)
        finalizing[0] = plan_memory  # instead of StaticPlanBlockMemory
    return (
        (split_slices, *theirs.library_dispatch_passes(target), *legalize[:at]),
        tuple(legalize[at:]),
        (*lowering, *finalizing),
    )


def kernels(mod: Any, target: Any) -> Any:
    """A module with its kernels, all unscheduled; "main" calls them in order."""
    with target, tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(list(stages(target)[0]))(mod)


def tasks_of(mod: Any) -> tuple[dict[str, Workload], list[tuple[str, str | None]]]:
    """The tasks of a module from `kernels`, by key, and the kernel calls of "main" in order: each
    is the kernel's symbol and the key of its task, or None."""
    found: dict[str, Workload] = {}
    made: dict[tuple[str, ...], Workload | None] = {}
    calls: list[tuple[str, str | None]] = []
    for call in calls_of(mod["main"]):
        symbol = symbol_of(call)
        about = (symbol, *(str(a.ty) for a in given(call)), str(call.ty))
        if about not in made:
            made[about] = _workload(mod, call, symbol)
        task = made[about]
        calls.append((symbol, None if task is None else task.key))
        if task is not None:
            found.setdefault(task.key, task)
    return found, calls


def calls_of(function: Any) -> Iterator[Any]:
    values = (b.value for block in function.body.blocks for b in block.bindings)
    return (value for value in values if symbol_of(value))


def given(call: Any) -> list[Any]:
    return list(getattr(call.args[1], "fields", call.args[1:]))


def _workload(mod: Any, call: Any, symbol: str) -> Workload | None:
    function = library_kernel(call)
    if function is not None:
        return workload(symbol.rpartition(".")[2], function, 1, symbol)
    callee = call.args[0]
    if isinstance(callee, tvm.ir.GlobalVar) and isinstance(mod[callee], tirx.PrimFunc):
        return workload(symbol, mod[callee], len(tensor_types(call.ty)))
    return None


def workload(name: str, function: Any, results: int, symbol: str = "") -> Workload | None:
    """A kernel as a task; None if it is scheduled or a shape is unknown."""
    if function.attrs.get("tirx.is_scheduled", False):
        return None
    for buffer in function.params:
        if not isinstance(buffer, tirx.Buffer) or not all_static(buffer.shape):
            return None
    arguments = tuple(TensorType(tuple(map(int, b.shape)), str(b.dtype)) for b in function.params)
    mod = bare(function)
    try:
        s_tir.Schedule(mod).get_sblock("root")
    except (s_tir.ScheduleError, ValueError):  # its form cannot be scheduled
        return None
    kernel = TaskKernel(mod, results, symbol)
    return Workload(key_of(mod), name, arguments, counted_flops(mod["main"]) or None, kernel)


def bare(function: Any) -> Any:
    attrs = {k: v for k, v in dict(function.attrs).items() if k == "s_tir"}
    attrs |= {"global_symbol": "main", "tirx.noalias": True}
    made = tvm.ir.make_node("ir.DictAttrs", **attrs)
    plain = tirx.PrimFunc(function.params, function.body, function.ret_type, made)
    return tvm.IRModule({"main": plain})


def key_of(mod: Any) -> str:
    """A task's key, computed only from the structure of its kernel."""
    return str(ms.utils.shash2hex(mod)).removeprefix("0x")


def library_kernel(call: Any) -> Any | None:
    """The kernel that TVM would use in place of a library call; None if it knows none."""
    if symbol_of(call) not in TURNS:
        return None
    turn_a, turn_b = TURNS[symbol_of(call)]
    types = [tensor_types(a.ty)[0] for a in given(call)]
    (out,) = tensor_types(call.ty)
    if any(d is None for t in (*types, out) for d in t.shape):
        return None
    a, b = (te.placeholder(t.shape, t.dtype, name) for t, name in zip(types, "ab", strict=True))
    k = te.reduce_axis((0, int(types[0].shape[-2 if turn_a else -1])), name="k")

    def element(*at: Any) -> Any:
        *batch, i, j = at
        left = (*_batch(types[0], batch), *((k, i) if turn_a else (i, k)))
        right = (*_batch(types[1], batch), *((j, k) if turn_b else (k, j)))
        return te.sum(a[left] * b[right], axis=k)

    made = te.compute(out.shape, element, name="matmul")
    function = te.create_prim_func([a, b, made]).without_attr("global_symbol")
    return function.with_attrs({"op_pattern": OPAQUE, "tirx.noalias": True})


def _batch(kind: TensorType, at: Sequence[Any]) -> list[Any]:
    """The indices of an operand's batch axes at a place of the result, with broadcasting."""
    dims = kind.shape[:-2]
    rest = at[len(at) - len(dims) :]
    return [0 if d == 1 else i for d, i in zip(dims, rest, strict=True)]


def alone(task: Workload, library: bool) -> Any:
    """A module whose "main" only calls a task's kernel, or the library function in its place."""
    kernel: TaskKernel = task.program
    builder = relax.BlockBuilder()
    kinds = [relax.TensorType(a.shape, a.dtype) for a in task.arguments]
    given, made = kinds[: -kernel.results], kinds[-kernel.results :]
    parameters = [relax.Var(f"x{i}", kind) for i, kind in enumerate(given)]
    result = made[0] if len(made) == 1 else made
    with builder.function("main", parameters):
        with builder.dataflow():
            if library and kernel.symbol:
                call = relax.op.call_dps_packed(kernel.symbol, tuple(parameters), result)
            else:
                function = kernel.mod["main"].without_attr("global_symbol")
                called = builder.add_func(function, "kernel")
                call = relax.call_tir(called, tuple(parameters), result)
            output = builder.emit_output(call)
        builder.emit_func_output(output)
    return builder.get()
