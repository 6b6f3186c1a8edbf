"""Build Relax functions with TVM's default pipeline, and run them on torch tensors in its VM.

Tensors pass by DLPack without copies, unless they are not contiguous or not aligned as TVM's
kernels expect. A result that is an unchanged argument is also copied.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import torch
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.building import cuda_graphs, executables
from relascope.engine.building.executables import Spent, Tensors
from relascope.engine.building.options import UNDER_WAY, Builder, BuildOptions, Keeping
from relascope.engine.cpu_kernels import dropout_masks, mersenne_twister
from relascope.engine.cpu_kernels.buffer_pool import SHARED
from relascope.engine.cpu_kernels.openblas import OPENBLAS
from relascope.engine.cpu_kernels.openblas import load as load_openblas
from relascope.engine.protocol.target_text import gpu_index, library
from relascope.engine.relax.building import apply_records, block_memory, openmp
from relascope.engine.relax.building.targets import LIBRARIES, SCHEDULES, parse, processor
from relascope.engine.relax.building.vm_memory import in_torchs_memory, live_bytes
from relascope.engine.relax.draw.to_graph import tensor_types
from relascope.engine.relax.kernels import (
    attention,
    blas,
    convolution,
    host_copies,
    openblas,
    operators,
    schedules,
    summed,
)
from relascope.passes.cuts.split_program import is_capture
from relascope.passes.relax import channels_last, tvm_pipelines
from relascope.passes.relax.ir.program import RelaxProgram

operators.register()
host_copies.register()
openmp.hand_over()


@functools.cache
def mask_kernel() -> mersenne_twister.Kernel:
    made = te.create_prim_func(mersenne_twister.computation(te, tirx))
    run = tvm.compile(tvm.IRModule({"main": made}), parse(processor()))["main"]
    return lambda tensors: run(*map(tvm.runtime.from_dlpack, tensors))


dropout_masks.DRAWING.provide(mask_kernel)
SHARED.provide(tvm.get_global_func("vm.builtin.memory_manager.clear"))


class Compiled(executables.Compiled):
    """A function that was built (see `executables.Compiled`), on the virtual machine."""

    def __init__(self, executable: Any, target: str, function: Any) -> None:
        self.arguments = arguments_of(function)
        self.used = tuple(self.arguments)
        attrs = dict(function.attrs or {}) if _moves_channels(target) else {}
        self._gives = [int(place) for place in attrs.get(channels_last.GIVES, ())]
        self._kinds = dict(self.arguments)
        self._takes = frozenset(map(str, attrs.get(channels_last.TAKES, ())))
        for name in self._takes:
            shape, dtype = self.arguments[name].shape, self.arguments[name].dtype
            last = tuple(shape[axis] for axis in channels_last.LAST)
            self._kinds[name] = TensorType(last, dtype)
        self._spent = block_memory.spent_by(function) or ()
        self._plain = [n for n in self.arguments if n not in self._spent]
        kind = str(parse(target).kind.name)
        self.device = tvm.device("cpu" if kind == "llvm" else kind, gpu_index(target))
        self._bytecode = executable
        self._held: dict[str, tuple[int, Any]] = {}
        self._turn = Lock()  # the machine runs one call at a time
        self._is_planned = block_memory.spent_by(function) is not None
        self._run_on(relax.VirtualMachine(executable, self.device))
        returned = map(int, self._forget())
        self._shown = [*self._plain, *(self._spent[place] for place in returned)]

    def _run_on(self, machine: Any) -> None:
        self.machine, self._main = machine, machine["main"]
        # The machine keeps what its last call returned; calling another function releases it.
        self._forget = machine[block_memory.RETURNED] if self._is_planned else lambda: ()

    def run(self, values: Tensors, keep: Iterable[str] = ()) -> tuple[torch.Tensor, ...]:
        return self.spend(values, keep, {})

    def spend(self, values: Tensors, keep: Iterable[str], spent: Spent) -> tuple[torch.Tensor, ...]:
        kept = frozenset(keep)
        # A result must not share memory with an argument or another result.
        sources = {name: spent if name in spent else values for name in self._shown}
        seen = {executables.given(source, name).data_ptr() for name, source in sources.items()}
        # On PyTorch's stream: after what PyTorch queued, without waiting for it.
        on_cpu = self.device.type == "cpu"
        with self._turn, nullcontext() if on_cpu else tvm_ffi.use_torch_stream():
            given = [self._array(n, sources[n], n in kept) for n in self._plain]
            if self._spent:
                given.append(self._taken(values, spent))
            made = self._main(*given)
            self._forget()
        tensors = list(map(executables.tensor_of, flat(made)))
        for place in self._gives:
            tensors[place] = tensors[place].permute(channels_last.FIRST)
        own = []
        for tensor in tensors:
            own.append(tensor.clone() if tensor.data_ptr() in seen else tensor)
            seen.add(tensor.data_ptr())
        return tuple(own)

    def _taken(self, values: Tensors, spent: Spent) -> Any:
        """The array for `spending`; nobody else holds the tensors taken out of `spent`."""
        arrays = []
        for name in self._spent:
            own = {name: spent.pop(name)} if name in spent else values
            arrays.append(self._array(name, own, False))
        return tvm_ffi.convert(arrays)

    @contextmanager
    def counting(self) -> Iterator[bool]:
        counted = self.device.type == "cpu"
        with self.on_another_machine(in_torchs=True) if counted else nullcontext():
            yield counted

    @contextmanager
    def on_another_machine(self, in_torchs: bool = False) -> Iterator[Any]:
        """Run on a machine made for it; `in_torchs` says whether in PyTorch's memory. One that has
        had an instrument keeps calling it, which takes time that is not the program's."""
        own = self.machine
        with in_torchs_memory() if in_torchs else nullcontext():
            self._run_on(relax.VirtualMachine(self._bytecode, self.device))
        try:
            yield self.machine
        finally:
            self._run_on(own)

    def own_memory(self, values: Tensors) -> executables.OwnMemory | None:
        sizes: list[int] = []

        def around(callee: Any, symbol: str, before: bool, result: Any, *args: Any) -> None:
            if before and symbol == "vm.builtin.alloc_storage":
                sizes.append(int(args[1][0]))

        with self.on_another_machine() as machine:
            machine.set_instrument(around)
            self.run(values)
        spent = [values[n].nbytes if is_capture(n) else 0 for n in self._spent]
        return live_bytes(str(self._bytecode.as_text()), sizes, spent, len(self._plain))

    def _array(self, name: str, values: Tensors, keep: bool) -> Any:
        address = executables.given(values, name).data_ptr()
        held = self._held.get(name)
        if keep and held is not None and held[0] == address:
            return held[1]
        if name in self._takes:
            values = {name: values[name].permute(channels_last.LAST)}
        value = executables.ready(values, name, self._kinds[name])
        array = tvm.runtime.from_dlpack(value)
        if keep and value.data_ptr() == address:  # a copy must be made again each time
            self._held[name] = (address, array)
        return array


def _moves_channels(target: str) -> bool:
    return bool(library(target, LIBRARIES)) and SCHEDULES in target.split()


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tvm.ir.Array | list | tuple) else [value]


def arguments_of(function: Any) -> dict[str, TensorType]:
    return {str(p.name): tensor_types(p.ty)[0] for p in function.params}


def build(program: RelaxProgram, options: BuildOptions, name: str = "main") -> executables.Compiled:
    function = _function(program, options, name)
    made = Compiled(executable(program, options, name), options.target, function)
    return cuda_graphs.as_target_says(made, options.target)


def _function(program: RelaxProgram, options: BuildOptions, name: str) -> Any:
    """A function of a program; a backward with our schedules on a CPU gives up captures and
    masks."""
    function, on_cpu = program.mod[name], str(parse(options.target).kind.name) == "llvm"
    if program.tvm_passes or program.code:  # the rest of TVM's pipeline builds it unchanged
        return function.without_attr(channels_last.TAKES).without_attr(channels_last.GIVES)
    if not on_cpu or SCHEDULES not in options.target:
        return function
    masks, names = {m.name for m in program.masks}, [str(p.name) for p in function.params]
    spent = [n for n in names if name == "backward" and (n in masks or is_capture(n))]
    return block_memory.spending(function, spent)


def executable(
    program: RelaxProgram,
    options: BuildOptions,
    name: str = "main",
    instruments: Sequence[Any] | None = None,
) -> Any:
    """Build one function of a typed program as `make` does; its device need not be here. The build
    is remembered by the module's structure, unless `instruments` watch; without any (None) it may
    also be another process's, which runs but has no source. Raises EngineError of kind "target",
    with TVM's reason, if TVM cannot build it."""
    UNDER_WAY.begin(name)
    function = _function(program, options, name)
    mod = module_of(program, name, function)
    if program.tvm_passes or program.code:
        options = replace(options, done=program.tvm_passes)
    options = options.with_records("relax", str(tvm.__version__))
    builder = _new_builder(instruments) if instruments else _builder
    names = tuple(str(p.name) for p in function.params)
    return builder.build(mod, names, options, keep=instruments is None)


def module_of(program: RelaxProgram, name: str, function: Any) -> Any:
    """A module with a function of a program as "main" and the functions that it may call."""
    others = {g: f for g, f in program.mod.functions.items() if g.name_hint not in (name, "main")}
    mod = tvm.IRModule({**others, "main": function.with_attr("global_symbol", "main")})
    return relax.transform.LambdaLift()(mod)  # TVM builds no local functions


def make(mod: Any, options: BuildOptions, instruments: Sequence[Any] = ()) -> Any:
    """Build a module: an executable for the virtual machine; `instruments` watch TVM's passes."""
    target = parse(options.target)
    if options.done is not None:
        with _context(options, instruments):
            return tvm.compile(mod, target, relax_pipeline=tvm_pipelines.rest(target, options.done))
    ours = SCHEDULES in options.target
    mod = dispatched(summed.by_axis(mod), options.target)
    faults: list[EngineError] = []
    found = options.with_records("relax", str(tvm.__version__)).records
    if found is not None:
        mod = apply_records.instead_of_library(mod, found)
    pipeline = apply_records.pipeline(target, ours, found, faults)
    if OPENBLAS in options.target.split():
        mod = openblas.native(mod)
    with (
        # The compiler of CUDA source asks for its architecture.
        target if target.kind.name == "cuda" else nullcontext(),
        schedules.ARITHMETIC.used(ours, target),
        _context(options, instruments),
    ):
        try:
            return tvm.compile(
                mod, target, relax_pipeline=pipeline, tir_pipeline=schedules.LOWERING
            )
        except Exception as error:
            if faults:
                raise faults[0] from error
            raise


def _context(options: BuildOptions, instruments: Sequence[Any]) -> Any:
    return tvm.transform.PassContext(
        opt_level=options.opt_level,
        disabled_pass=list(options.disabled),
        instruments=list(instruments),
    )


def dispatched(mod: Any, target: str) -> Any:
    """A module with matmuls and convolutions by a library or by us, as the target says."""
    served, ours = bool(library(target, LIBRARIES)), SCHEDULES in target.split()
    if not served and not ours:
        return mod
    mod = summed.merged(mod)
    if _moves_channels(target):
        others = {g: f for g, f in mod.functions.items() if g.name_hint != "main"}
        mod = tvm.IRModule({**others, mod.get_global_var("main"): convolution.moved(mod["main"])})
    if served:
        blas.register()
        if OPENBLAS not in target.split():  # beside it PyTorch's attention is no faster
            mod = attention.dispatch(mod)
    chosen = parse(target)
    registers = blas.registers_of(chosen) if ours else None
    return blas.dispatch(mod, served, registers, "gpu" in chosen.keys)


def _load(file: str, mod: Any, options: BuildOptions) -> Any:
    if options.done is None:
        dispatched(mod, options.target)  # registers our functions that it calls
    if OPENBLAS in options.target.split():
        load_openblas()
    return relax.VMExecutable(tvm.runtime.load_module(file))


def _new_builder(instruments: Sequence[Any] = ()) -> Builder:
    making, keeping = partial(make, instruments=instruments), Keeping(tvm.ir.save_json, _load)
    return Builder(making, tvm_ffi.structural_hash, tvm_ffi.structural_equal, keeping)


_builder = _new_builder()


def assemble(program: RelaxProgram, split: Any, options: BuildOptions) -> executables.Executable:
    """A program, whole or split into its two functions, built with options."""
    return executables.built(program, split, partial(build, options=options))
