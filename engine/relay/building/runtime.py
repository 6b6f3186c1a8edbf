"""Build Relay functions with `relay.build` and run them on torch tensors: in TVM's graph executor,
or in its virtual machine if they have control flow.

The executor is pointed at the memory of inputs and fresh outputs. A backward on a CPU stops between
a few kernels to free captures and to get memory for gradients. Tensors are copied if they are not
contiguous or not aligned as TVM's kernels expect. So are results before a reshape that the executor
skips (`__nop`), because the reshaped value keeps pointing at the executor's memory.
"""

import ctypes
import functools
import json
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import torch
import tvm
from tvm import relay, te
from tvm._ffi._ctypes import packed_func
from tvm._ffi.base import _LIB, check_call
from tvm._ffi.runtime_ctypes import ArgTypeCode, TVMArray
from tvm.contrib import graph_executor
from tvm.relay.backend import te_compiler

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.building import cuda_graphs, executables
from relascope.engine.building.executables import Spent, Tensors
from relascope.engine.building.options import UNDER_WAY, Builder, BuildOptions, Keeping
from relascope.engine.cpu_kernels import dropout_masks, mersenne_twister, openblas
from relascope.engine.cpu_kernels.buffer_pool import LARGE, BufferPool
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.protocol import target_text
from relascope.engine.relay.building import apply_records, in_place, openmp, storages
from relascope.engine.relay.building.beside_convolutions import written_out
from relascope.engine.relay.building.bounded_fusion import bounded
from relascope.engine.relay.building.machine import VmModule, has_control_flow
from relascope.engine.relay.building.storages import Passing, Workspace
from relascope.engine.relay.building.targets import LIBRARIES, parse, processor
from relascope.engine.relay.draw.to_graph import tensor_types
from relascope.engine.relay.kernels import (
    blas,
    conv_weights,
    convolution,
    erf,
    scattered,
    schedules,
    summed,
    torch_convolution,
)
from relascope.engine.relay.kernels.gpu_tiles import GpuTiles
from relascope.passes.cuts.split_program import SplitProgram, is_capture
from relascope.passes.relay.absorb_transposes import absorb_transposes
from relascope.passes.relay.ir.doubles import without_doubles
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import copied, everything, op_name
from relascope.passes.relay.training import weight_gradient
from relascope.passes.relay.training.split import PER_USE

erf.register()
scattered.register()
weight_gradient.register()
openmp.hand_over()
# TVM reads a hundred facts of its own build, one by one, for every kernel that it lowers.
te_compiler.libinfo = functools.cache(te_compiler.libinfo)


@functools.cache
def mask_kernel() -> mersenne_twister.Kernel:
    made = te.create_prim_func(mersenne_twister.computation(te, tvm.tir))
    run = tvm.build(tvm.IRModule({"main": made}), target=parse(processor()))
    return lambda tensors: run(
        *(tvm.nd.from_dlpack(torch.utils.dlpack.to_dlpack(t)) for t in tensors)
    )


dropout_masks.DRAWING.provide(mask_kernel)


class Compiled(executables.Compiled):
    """A function that was built (see `executables.Compiled`), on the graph executor, whose memory
    of intermediate results serves one call at a time; on the CPU it can give up `spends`, names of
    arguments, after their last readers."""

    def __init__(
        self,
        library: Any,
        target: str,
        function: Any,
        workspace: Workspace | None = None,
        spends: Collection[str] = (),
    ) -> None:
        self.arguments = arguments_of(function)
        self.outputs = tensor_types(function.ret_type)
        self.library = library
        self._device = _device(target)
        self._home = _torch(self._device)
        self._on_cpu = self._home.type == "cpu"
        layout = json.loads(library.get_graph_json())
        if self._on_cpu:
            layout = storages.ordered(layout, spends)
        given = {n["name"]: i for i, n in enumerate(layout["nodes"]) if n["op"] == "null"}
        viewed, pointed_out = storages.views(layout)
        rows = layout["node_row_ptr"]
        # TVM compares a result's index with the number of the graph's values, which is smaller if
        # one value is many results.
        self._pointed_out = {i for i in pointed_out if i < rows[-1]}
        self.used = tuple(n for n in self.arguments if n in given)
        self._pointed_in = {n for n in self.used if given[n] not in viewed}
        heads = [rows[node] + index for node, index, *_ in layout["heads"]]
        places: dict[str | int, int] = {n: rows[given[n]] for n in self._pointed_in}
        places |= {i: heads[i] for i in self._pointed_out}
        sizes = storages.entry_bytes(layout)
        self._bytes = {key: sizes[entry] for key, entry in places.items()}
        self.result_bytes = sum(self._bytes[i] for i in self._pointed_out)
        elsewhere = {*places.values()}
        constants = {rows[given[n]]: a for n, a in library.get_params().items() if n in given}
        workspace = workspace or Workspace()
        self.storages = storages.Storages(layout, elsewhere, constants, workspace)
        gives = self._pointed_in.intersection(spends if self._on_cpu else ())
        keys: list[str | int] = [*self._pointed_out, *gives]
        lives = {key: self.storages.lives[places[key]] for key in keys}
        self._pieces = storages.pieces(len(layout["nodes"]), lives, self._bytes)
        self._held: dict[str, tuple[int, Any]] = {}
        self._pool = workspace.pool or BufferPool()
        self._start = 0
        self._pointers: dict[str | int, _Pointer] = {}

    @functools.cached_property
    def _module(self) -> Any:
        if self._on_cpu:
            return self.storages.executor(self.library, self._device, self._start)
        return graph_executor.GraphModule(self.library["default"](self._device))

    def run(self, values: Tensors, keep: Iterable[str] = ()) -> tuple[torch.Tensor, ...]:
        return self.spend(values, keep, {})

    def spend(self, values: Tensors, keep: Iterable[str], spent: Spent) -> tuple[torch.Tensor, ...]:
        with self.storages.workspace.turn:
            return self._run(values, frozenset(keep), spent)

    def _run(self, values: Tensors, kept: frozenset[str], spent: Spent) -> tuple[torch.Tensor, ...]:
        if not self._on_cpu:  # run after what torch has queued
            stream = torch.cuda.current_stream(self._home).cuda_stream
            # ctypes would cut a bare number to half of the stream's address.
            self._device.set_raw_stream(ctypes.c_void_p(stream))
        elif (memory := self.storages.workspace.memory()).data_ptr() != self._start:
            self._start = memory.data_ptr()  # it has grown for another function
            self.__dict__.pop("_module", None)
            self._held, self._pointers = {}, {}
        for name in self.used:
            self._set(name, spent if name in spent else values, name in kept)
        results: list[torch.Tensor | None] = [None] * len(self.outputs)
        module, parts = self._module, len(self._pieces)
        if parts > 1:
            module.run_to(0)  # an argument; the next call runs the nodes after it
        for last, written, read in self._pieces:
            for index in written:
                results[index] = self._empty(index)
            module.run_to(last) if parts > 1 else module.run()
            for name in read:
                if spent.pop(name, None) is not None:
                    del self._held[name]
        # Before an argument's copy goes: a result may be a view of it.
        made = tuple(self._copied(i) if r is None else r for i, r in enumerate(results))
        for name in self.used:
            if name not in kept:
                self._held.pop(name, None)
        return made

    def own_memory(self, values: Tensors) -> executables.OwnMemory | None:
        """The executor's storages, and the memory of large results and of captures until they are
        given up; an executor on a GPU takes somewhat more, by TVM's own plan."""
        results, workspace = self._pool.nbytes, self.storages.workspace
        pools: dict[Hashable, int] = {id(self): results, id(workspace): self.storages.nbytes}
        pooled = [k for k in self._bytes if self._on_cpu and (isinstance(k, int) or is_capture(k))]
        large = {k: self._bytes[k] for k in pooled if self._bytes[k] >= LARGE}
        held = most = given = sum(large.get(n, 0) for *_, read in self._pieces for n in read)
        for _, written, read in self._pieces:
            most = max(most, held := held + sum(large.get(i, 0) for i in written))
            held -= sum(large.get(n, 0) for n in read)
        peak = self.storages.nbytes + most
        return executables.OwnMemory(peak, results, pools, given={None: given})

    @contextmanager
    def counting(self) -> Iterator[bool]:
        own = self._pool, self.storages.workspace
        if self._on_cpu:
            self._pool, self.storages.workspace = BufferPool(inf), Passing()
            self.storages.workspace.reserve(self.storages.nbytes)
        try:
            yield self._on_cpu
        finally:
            self._pool, self.storages.workspace = own

    def _set(self, name: str, values: Tensors, keep: bool) -> None:
        address = executables.given(values, name).data_ptr()
        held = self._held.get(name)
        if keep and held is not None and held[0] == address:
            return
        value = executables.ready(values, name, self.arguments[name])
        if name in self._pointed_in:
            owner = self._pointer(name)(value)
            # Make a copy (of a tensor that is not contiguous or aligned, or of another device) anew
            # each time.
            same = owner is value and value.data_ptr() == address
            self._held[name] = (address if same else 0, owner)
        else:
            self._module.set_input(name, as_array(value, self._device))

    def _pointer(self, key: str | int) -> "_Pointer":
        """The pointer of an argument, by its name, or of a result, by its index."""
        if key not in self._pointers:
            if isinstance(key, int):
                point, at, kind = self._module._set_output_zero_copy, key, self.outputs[key]
            else:
                point, kind = self._module._set_input_zero_copy, self.arguments[key]
                at = self._module.get_input_index(key)
            self._pointers[key] = _Pointer(point, at, kind, self._device)
        return self._pointers[key]

    def _empty(self, index: int) -> torch.Tensor | None:
        """A tensor that the executor will write result `index` to, or None if it must not."""
        kind = self.outputs[index]
        shape, dtype = [int(d) for d in kind.shape], getattr(torch, kind.dtype)
        result = self._pool.take(shape, dtype, self._home)
        if result.data_ptr() % executables.ALIGNMENT or not result.numel():
            return None
        return result if self._pointer(index)(result) is result else None

    def _copied(self, index: int) -> torch.Tensor:
        return as_tensor(self._module.get_output(index)).clone()


class _Pointer:
    """Points an executor at tensors for one of its arguments or results.

    It reuses one DLPack tensor, and calls TVM without TVM's Python, whose arrays and calls take
    longer than small kernels.
    """

    def __init__(self, point: Any, index: int, kind: TensorType, device: Any) -> None:
        self._point, self._index, self._device = point, index, device
        self._home = _torch(device)
        self._shape = (ctypes.c_int64 * len(kind.shape))(*map(int, kind.shape))
        dtype = tvm.DataType(kind.dtype)
        self._tensor = TVMArray(None, device, len(self._shape), dtype, self._shape, None, 0)
        values = (packed_func.TVMValue * 2)()
        values[0].v_int64, values[1].v_handle = index, ctypes.addressof(self._tensor)
        codes = (ctypes.c_int * 2)(ArgTypeCode.INT, ArgTypeCode.DLTENSOR_HANDLE)
        result = ctypes.byref(packed_func.TVMValue()), ctypes.byref(ctypes.c_int())
        self._call = point.handle, values, codes, 2, *result

    def __call__(self, tensor: torch.Tensor) -> Any:
        """Point at a contiguous tensor of the type, or at its copy on the device. Returns the one
        pointed at; keep it until the executor has run."""
        if tensor.device != self._home:
            array = as_array(tensor, self._device)
            self._point(self._index, array)
            self._tensor.data = None
            return array
        if self._tensor.data == tensor.data_ptr():
            return tensor
        self._tensor.data = tensor.data_ptr()
        check_call(_LIB.TVMFuncCall(*self._call))
        return tensor


def _torch(device: Any) -> torch.device:
    if device.device_type == tvm.cpu(0).device_type:
        return torch.device("cpu")
    return torch.device("cuda", device.device_id)


def as_array(tensor: torch.Tensor, device: Any) -> Any:
    """A contiguous tensor as a TVM array, on the same memory where it is on the device."""
    if tensor.device != _torch(device):
        return tvm.nd.array(tensor.cpu().numpy(), device)
    if tensor.dtype is not torch.bool:
        return tvm.nd.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))
    array = tvm.nd.from_dlpack(torch.utils.dlpack.to_dlpack(tensor.view(torch.uint8)))
    array.handle.contents.dtype.bits = 1  # bool, as this TVM has it
    return array


def as_tensor(array: Any) -> torch.Tensor:
    """A TVM array as a tensor on the same memory."""
    if array.dtype != "bool":
        return torch.utils.dlpack.from_dlpack(array.to_dlpack())
    kind = array.handle.contents.dtype
    kind.bits = 8  # PyTorch takes no booleans of one bit
    try:
        return torch.utils.dlpack.from_dlpack(array.to_dlpack()).view(torch.bool)
    finally:
        kind.bits = 1


class InMachine(executables.Compiled):
    """A function with control flow that was built (see `executables.Compiled`)."""

    def __init__(self, machine: VmModule, target: str, function: Any) -> None:
        self.arguments = arguments_of(function)
        self.used = tuple(self.arguments)
        self._machine, self._device = machine, _device(target)

    def run(self, values: Tensors, keep: Iterable[str] = ()) -> tuple[torch.Tensor, ...]:
        given = (executables.ready(values, name, kind) for name, kind in self.arguments.items())
        results = self._machine([as_array(value, self._device) for value in given])
        return tuple(as_tensor(result).clone() for result in results)

    def own_memory(self, values: Tensors) -> executables.OwnMemory | None:
        return None  # the machine does not say


def _device(target: str) -> Any:
    return tvm.device(str(parse(target).kind), target_text.gpu_index(target))


def build(
    program: RelayProgram,
    options: BuildOptions,
    name: str = "main",
    workspace: Workspace | None = None,
) -> executables.Compiled:
    if has_control_flow(mod := _module_of(program, program.mod[name])):
        inputs = tuple(str(p.name_hint) for p in mod["main"].params)
        return InMachine(_machines.build(mod, inputs, options), options.target, program.mod[name])
    built = library(program, options, name)
    function, masks = program.mod[name], {m.name for m in program.masks}
    names = arguments_of(function) if name == "backward" else ()
    spends = [n for n in names if n in masks or is_capture(n)]
    made = Compiled(built, options.target, function, workspace, spends)
    return cuda_graphs.as_target_says(made, options.target)


def library(
    program: RelayProgram,
    options: BuildOptions,
    name: str = "main",
    instruments: Sequence[Any] | None = None,
) -> Any:
    """Build one function of a typed program as `make` does; its device need not be here. The build
    is remembered by the function's structure, unless `instruments` watch. If they are None, it may
    be loaded from another process's build, which runs but has no source. Raises EngineError of kind
    "target", with TVM's reason, if TVM cannot build it."""
    function = program.mod[name]
    builder = _new_builder(instruments) if instruments else _builder
    names = tuple(p.name_hint for p in function.params)
    options = options.with_records("relay", str(tvm.__version__))
    if program.tvm_passes:
        options = replace(options, opt_level=0)
    if function.attrs is not None and PER_USE in function.attrs:  # TVM would compute it once
        options = replace(options, disabled=(*options.disabled, "EliminateCommonSubexpr"))
    UNDER_WAY.begin(name)
    making = partial(prepared, program, function, options)
    module = _module_of(program, function)
    return builder.build(module, names, options, making, keep=instruments is None)


def _module_of(program: RelayProgram, function: Any) -> tvm.IRModule:
    """A module with a function of a program as "main" and the functions that it may call."""
    mod = copied(program.mod)
    mod["main"] = function
    return mod


def _machine(mod: tvm.IRModule, options: BuildOptions) -> VmModule:
    plain = target_text.without(options.target, (SCHEDULES, *LIBRARIES, cuda_graphs.GRAPHS))
    about = {"opt_level": options.opt_level, "disabled_pass": list(options.disabled)}
    with tvm.transform.PassContext(**about):
        return VmModule(mod, parse(plain), _device(plain))


def prepared(program: RelayProgram, function: Any, options: BuildOptions) -> Any:
    """A function of a program as TVM builds it: alone, with the functions that it calls inlined.
    Raises EngineError of kind "target" if it has control flow, which only `build` takes."""
    if has_control_flow(_module_of(program, function)):
        message = "Programs with control flow run on Relay's virtual machine, as a whole only."
        hint = "Choose a part without `if`, recursion and functions as values."
        raise EngineError("target", message, options.target, hint)
    if len(program.mod.functions) > 1:
        function = _alone(program, function)
    program = without_doubles(replace(program, mod=tvm.IRModule({"main": function})), building=True)
    if SCHEDULES in options.target.split():
        with parse(options.target):
            program = schedules.pack(program)
    library = target_text.library(options.target, LIBRARIES)
    if library:
        _offer(options.target)
        program = summed.merged(absorb_transposes(program))
    if library and "cpu" in parse(options.target).keys:
        program = torch_convolution.served(program)
    else:
        program = torch_convolution.unserved(program)
    if "cpu" in parse(options.target).keys:
        program = scattered.into_zeros(program)
    return bounded(written_out(program)).main


def _offer(target: str) -> None:
    """Register the library functions that builds for a target may call."""
    if target_text.library(target, LIBRARIES):
        blas.register()
        torch_convolution.register()
        if "openblas" in parse(target).libs:
            openblas.load()


def _alone(program: RelayProgram, function: Any) -> Any:
    """A function with the module's functions that it calls inlined."""
    mod = copied(program.mod)
    for name, other in program.mod.functions.items():
        if isinstance(other, relay.Function):
            mod[name] = other.with_attr("Inline", tvm.tir.IntImm("int32", 1))
    mod["main"] = function
    return relay.transform.InferType()(relay.transform.Inline()(mod))["main"]


def make(function: Any, options: BuildOptions, instruments: Sequence[Any] = ()) -> Any:
    """Build a function: a library for the graph executor; `instruments` watch TVM's passes."""
    ours, target = SCHEDULES in options.target.split(), parse(options.target)
    if ours and _has_tangent(function):
        target = parse(target_text.without(options.target, (SCHEDULES,)))
    tiles = convolution.Tiles() if ours else nullcontext()
    if "gpu" in target.keys:
        tiles = GpuTiles()
    with (
        tiles,
        apply_records.applied(function, options),
        schedules.used(ours, target),
        tvm.transform.PassContext(
            opt_level=options.opt_level,
            disabled_pass=[*options.disabled, *(schedules.IDLE if ours else ())],
            instruments=list(instruments) or [_TypesOnce()],
            config=schedules.CONFIG if ours else {"tir.add_lower_pass": schedules.LOWERED},
        ),
    ):
        mod = conv_weights.without_halves(tvm.IRModule({"main": function}))
        return in_place.noted(
            relay.build(conv_weights.laid_out(mod, target) if ours else mod, target)
        )


@tvm.instrument.pass_instrument
class _TypesOnce:
    """Skips TVM's inference of types, before nearly every pass, if all functions have types; counts
    kernels for the progress."""

    def __init__(self) -> None:
        self._typed: dict[int, Any] = {}  # by address; what is here is not freed

    def should_run(self, mod: Any, info: Any) -> bool:
        return info.name != "InferType" or not all(
            f.handle.value in self._typed for f in mod.functions.values()
        )

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if info.name == "LowerTE":
            fused = (e for e in everything(mod["main"].body) if isinstance(e, relay.Function))
            UNDER_WAY.kernels = len({tvm.ir.structural_hash(f) for f in fused})

    def run_after_pass(self, mod: Any, info: Any) -> None:
        if info.name == "InferType":
            self._typed |= {f.handle.value: f for f in mod.functions.values()}
        elif info.name == "LowerTE":
            UNDER_WAY.stage(f": machine code of {len(mod.functions) - 1} kernels")


def _has_tangent(function: Any) -> bool:
    """Whether a function has a tangent, or a sine over a cosine, as TVM writes one.

    If LLVM may reorder arithmetic, this TVM's LLVM passes vectors to the C library's `tan`, with
    wrong results.
    """
    met = everything(function)
    ratios = [c for c in met if op_name(c) == "divide"]
    return any(op_name(c) == "tan" for c in met) or any(
        {op_name(a) for a in c.args} == {"sin", "cos"} for c in ratios
    )


class _Loaded:
    """A library for the graph executor, as `Compiled` takes it, from a shared object."""

    def __init__(self, file: str, mod: tvm.IRModule, options: BuildOptions) -> None:
        _offer(options.target)
        self._module, self._given = tvm.runtime.load_module(file), set(arguments_of(mod["main"]))
        self.get_graph_json = self._module["get_graph_json"]

    def get_lib(self) -> Any:
        return self._module.imported_modules[0]

    def get_params(self) -> dict[str, Any]:
        executor = graph_executor.GraphModule(self._module["default"](tvm.cpu()))
        nodes = json.loads(self.get_graph_json())["nodes"]
        names = {n["name"] for n in nodes if n["op"] == "null"} - self._given
        return {name: tvm.nd.array(executor.get_input(name).numpy()) for name in names}


def _new_builder(instruments: Sequence[Any] = ()) -> Builder:
    making = partial(make, instruments=instruments)
    keeping = Keeping(tvm.ir.save_json, _Loaded)
    return Builder(making, tvm.ir.structural_hash, tvm.ir.structural_equal, keeping)


_builder = _new_builder()
_machines = Builder(_machine, tvm.ir.structural_hash, tvm.ir.structural_equal)


def arguments_of(function: Any) -> dict[str, TensorType]:
    return {str(p.name_hint): tensor_types(p.checked_type)[0] for p in function.params}


def assemble(
    program: RelayProgram,
    split: SplitProgram | None,
    options: BuildOptions,
    workspace: Workspace | None = None,
) -> executables.Executable:
    """A program, whole or split into its two functions, built with options."""
    making = partial(build, options=options, workspace=workspace or Workspace())
    return executables.built(program, split, making)
