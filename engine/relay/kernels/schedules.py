"""Our schedules (`engine.cpu_kernels.schedules`) in Relay's build for the CPU.

Relay asks a database of MetaSchedule records for each kernel; this one schedules by rule when
asked. It has no record for other kernels, such as convolutions, which TVM schedules.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import meta_schedule, relay, te, tir, topi
from tvm.meta_schedule.database.database import _PyDatabase
from tvm.target.x86 import get_simd_32bit_lanes

from relascope.engine.building.options import UNDER_WAY
from relascope.engine.cpu_kernels import max_pool, nan_kept, packed_matmul
from relascope.engine.cpu_kernels.prefetch import read_ahead
from relascope.engine.cpu_kernels.schedules import Dialect, scheduled
from relascope.engine.cpu_kernels.vector_math import LOWERING, VectorMath
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite


@tir.transform.prim_func_pass(opt_level=0, name="relascope.under_way")
def _under_way(function: Any, module: Any, context: Any) -> Any:
    UNDER_WAY.kernel(str(function.attrs["global_symbol"]).removeprefix("tvmgen_default_"))
    return function


@tir.transform.prim_func_pass(opt_level=0, name="relascope.read_ahead")
def _read_ahead(function: Any, module: Any, context: Any) -> Any:
    return read_ahead(_DIALECT, function)


def _intrinsic(dtype: str, name: str, *arguments: Any) -> Any:
    count = tir.const(len(arguments), "uint32")  # whose types select the overload
    return tir.call_llvm_pure_intrin(dtype, name, count, *arguments)


def _transformed(name: str, nodes: Sequence[str], rule: Callable[[Any], Any]) -> Any:
    """A pass over kernels that changes nodes of some kinds; `rule` returns, for a body, the
    function that changes each node, or None if all stay."""

    @tir.transform.prim_func_pass(opt_level=0, name=f"relascope.{name}")
    def run(function: Any, module: Any, context: Any) -> Any:
        changed, kinds = rule(function.body), [f"tir.{n}" for n in nodes]
        if changed is None:
            return function
        return function.with_body(
            tir.stmt_functor.ir_transform(function.body, None, changed, kinds)
        )

    return run


def _nan_kept(*names: str) -> Any:
    known = nan_kept.marks(tir, _intrinsic)
    return _transformed(
        "nan_kept", names, lambda body: nan_kept.rule(tir, _DIALECT.walk, body, names=known)
    )


def _places(body: Any) -> Any:
    return nan_kept.places(tir, _DIALECT.walk, tvm.ir.structural_equal, body)


_narrowed = functools.partial(nan_kept.narrowed, tir, _intrinsic, dtypes=("bfloat16", "float16"))
_NUMBERS = {"float32", "int32", "float64", "int64"}
_IMMEDIATE = (tir.FloatImm, tir.IntImm)


def _bits_of_numbers(body: Any) -> Any:
    """CUDA source cannot read the bits of a number that is in no variable."""
    target = tvm.target.Target.current()
    if target is None or str(target.kind) != "cuda":
        return None

    def known(call: Any) -> Any:
        (number,) = call.args if call.op.name == "tir.reinterpret" else (None,)
        kinds = {str(call.dtype), str(getattr(number, "dtype", ""))}
        if not isinstance(number, _IMMEDIATE) or not kinds <= _NUMBERS:
            return call
        bits = np.asarray(number.value, number.dtype).view(str(call.dtype))
        return tir.const(bits.item(), call.dtype)

    return known


bits_of_numbers = _transformed("bits_of_numbers", ("Call",), _bits_of_numbers)

_SHORT = 1024
"""Threads do not pay for so few steps; TVM's scatter_nd starts them anew for each index."""


def _one_thread(loop: Any) -> Any:
    count = loop.extent.value if isinstance(loop.extent, tir.IntImm) else _SHORT
    if int(loop.kind) != tir.ForKind.PARALLEL or count >= _SHORT:
        return loop
    inside: list[Any] = []
    _DIALECT.walk(loop.body, lambda node: inside.append(isinstance(node, tir.For)))
    rest = tir.ForKind.SERIAL, loop.body, None, loop.annotations
    return loop if any(inside) else tir.For(loop.loop_var, loop.min, loop.extent, *rest)


def _from_zero(loop: Any) -> Any:
    """A loop from 0 on, as this TVM's LLVM code generator wants it; a part of a loop is not."""
    if not isinstance(loop.min, tir.IntImm) or not loop.min.value:
        return loop
    body = tir.stmt_functor.substitute(loop.body, {loop.loop_var: loop.loop_var + loop.min})
    rest = loop.kind, body, loop.thread_binding, loop.annotations
    return tir.For(loop.loop_var, tir.const(0, loop.min.dtype), loop.extent, *rest)


LOWERED = [
    (0, _under_way),
    (0, _transformed("nan_places", ("Select", "Sub", "Call"), _places)),
    (0, _transformed("narrowed", ("Cast",), lambda body: _narrowed)),
    (0, _nan_kept(*nan_kept.NEGATED)),
    (1, tir.transform.BF16ComputeLegalize()),  # which knows neither our names nor vectors
    (3, _nan_kept(*nan_kept.CHANGED, "NE", *nan_kept.COMPARED)),
    (3, bits_of_numbers),
    (3, _transformed("loops", ("For",), lambda body: lambda loop: _one_thread(_from_zero(loop)))),
]
CONFIG = {
    "relay.backend.use_meta_schedule": True,
    "relay.backend.tir_converter": "allow_extern",  # kernels that call a library, too
    "tir.add_lower_pass": [(0, _read_ahead), *LOWERED],
}
"""Settings of a pass context that make Relay ask."""

IDLE = ("MetaScheduleLayoutRewrite",)
"""TVM's passes that find nothing to do with these schedules, and take long to find out: this one
makes every kernel again, in case a record wants a weight in another layout."""

REGISTERS = 14
"""How many of 16 registers this TVM's LLVM 10 uses well."""

_REGISTERS = {8: packed_matmul.Registers(REGISTERS), 16: packed_matmul.Registers(24, 16)}
"""By the lanes of a register, see `engine.cpu_kernels.packed_matmul.tile`."""

_PACKED = "nn.contrib_dense_pack"

_used = False


@contextlib.contextmanager
def used(here: bool, target: Any) -> Iterator[None]:
    """A context in which builds for a target use these schedules if `here`."""
    global _used
    _register()
    _sums()
    before, _used = _used, here
    try:
        with _arithmetic().used(here, target), _database() if here else contextlib.nullcontext():
            yield
    finally:
        _used = before


def active() -> bool:
    """Whether the current build uses these schedules."""
    return _used


@functools.cache
def _arithmetic() -> VectorMath:
    return VectorMath(tvm, tir, "tir", _intrinsic)


@functools.cache
def _sums() -> None:
    """Keep a sum of products as it is, for LLVM 10 to vectorise: TVM would write `llvm.fmuladd`.

    The target's flags let LLVM join them later. A polynomial's steps stay calls, or lose their
    order.
    """
    theirs = tvm.ir.Op.get("tir.fma").get_attr(LOWERING)

    def lowered(call: Any) -> Any:
        summed = isinstance(call.args[2], tir.BufferLoad) and "x" not in str(call.dtype)
        return None if _used and summed else theirs(call)

    tvm.ir.register_op_attr("tir.fma", LOWERING, lowered, level=99)


def _database() -> Any:
    """A database that has a record of every kernel that our rules know; remembers equal kernels."""
    known: dict[int, list[tuple[Any, Any]]] = {}

    def nothing(*_: Any) -> None:
        """Methods that are not called here."""

    def query(mod: Any, target: Any, name: str) -> Any:
        if not tvm.ir.structural_equal(mod, mod):  # it holds NaN, unlike itself
            return None
        same = known.setdefault(int(tvm.ir.structural_hash(mod)), [])
        for other, record in same:
            if tvm.ir.structural_equal(mod, other):
                return record
        same.append((mod, record_of(mod)))
        return same[-1][1]

    def record_of(mod: Any) -> Any:
        kernel = mod["main"]
        made = None if _offset(kernel.body) else scheduled(_DIALECT, kernel, sure=True)
        if made is None:
            return None
        return meta_schedule.database.TuningRecord(made.trace, meta_schedule.database.Workload(mod))

    stored = (lambda mod: False), meta_schedule.database.Workload, nothing
    best: tuple[Any, ...] = (lambda workload, k: []), (lambda: [])
    return _PyDatabase(*stored, *best, query, nothing, nothing, lambda: 0)


@functools.cache
def _register() -> None:
    """Compute products with packed weights, gradients of maxima over windows, and concatenations in
    the form that these schedules know."""
    _computed("nn.max_pool2d_grad", _pooled)
    _computed("concatenate", _joined)
    _computed(_PACKED, _product)


def _computed(name: str, ours: Callable[..., Callable[..., Any] | None]) -> None:
    """Have an operator computed by what `ours` returns for its attributes, operands and target, or
    by TVM if that is None."""
    theirs = relay.op.get(name).get_attr("FTVMStrategy")

    @tvm.target.override_native_generic_func(f"relascope.{name}")
    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
        stage = ours(attrs, inputs, target)
        if stage is None:
            return theirs(attrs, inputs, out_type, target)
        made = relay.op.OpStrategy()
        made.add_implementation(
            lambda attrs, inputs, out_type: [stage(*inputs)],
            lambda attrs, outs, target: te.create_schedule(outs[0].op),
            name=f"{name}.relascope",
        )
        return made

    relay.op.op.register_strategy(name, strategy, level=20)


def _product(attrs: Any, inputs: Any, target: Any) -> Callable[..., Any] | None:
    tile = _tile(*inputs[:2]) if len(inputs[1].shape) == 3 else None
    if tile is None:
        return None
    outer = [int(inputs[0].shape[0])]
    return functools.partial(packed_matmul.product, te, tir, tile=tile, outer=outer)


def _pooled(attrs: Any, inputs: Any, target: Any) -> Callable[..., Any] | None:
    on_cpu = target.kind.name == "llvm"
    return max_pool.kernel(te, tir, attrs, str(inputs[1].dtype)) if on_cpu else None


def _joined(attrs: Any, inputs: Any, target: Any) -> Callable[..., Any] | None:
    """TVM's own for the CPU writes one operand after the other, in one thread."""
    if not _used or target.kind.name != "llvm":
        return None
    return lambda *parts: topi.concatenate(parts, int(attrs.axis))


def pack(program: RelayProgram) -> RelayProgram:
    """The program with constant weights packed in products where that pays for the current target.
    Biases get all their final axes, or FoldConstant would compile a kernel for each. Squares and
    cubes are products, because FuseOps leaves an exponent that several kernels read to none."""

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) == "nn.bias_add" and isinstance(args[1], relay.Constant):
            rank = len(call.checked_type.shape)
            shape = [-1 if axis == int(call.attrs.axis) % rank else 1 for axis in range(rank)]
            bias = args[1].data.numpy().reshape(shape)
            return relay.add(args[0], relay.const(bias, str(bias.dtype)))
        exponent = args[1] if op_name(call) == "power" else None
        if isinstance(exponent, relay.Constant) and not exponent.data.shape:
            square = relay.multiply(args[0], args[0])
            cube = relay.multiply(square, args[0])
            return {2.0: square, 3.0: cube}.get(float(exponent.data.numpy()))
        if op_name(call) != "nn.dense" or not isinstance(call.args[1], relay.Constant):
            return None
        kinds = [a.checked_type for a in call.args]
        if any(str(k.dtype) != packed_matmul.DTYPE for k in kinds):
            return None
        weight = call.args[1].data.numpy()
        tile = _tile_of(kinds[0].shape[0], weight.shape[0])
        if tile is None:
            return None
        panels = relay.const(packed_matmul.panels(weight.T, tile))
        return relay.nn.contrib_dense_pack(
            args[0], panels, f"NC{tile.columns}n", None, packed_matmul.DTYPE
        )

    return rewrite(program, visit)


def _tile(data: Any, weight: Any) -> packed_matmul.MatmulTile | None:
    count, _, width = (int(d) for d in weight.shape)
    if not _used or str(data.dtype) != packed_matmul.DTYPE:
        return None
    tile = _tile_of(data.shape[0], count * width)
    return tile if tile is not None and tile.columns == width else None


def tile_for(left: Any, right: Any, turned: bool) -> packed_matmul.MatmulTile | None:
    """The tile for the product of `left` (rows, inner) and `right` (inner, columns), or (columns,
    inner) if turned; None if a library serves it better."""
    extents = (*left.shape, right.shape[0 if turned else 1])
    if not _fits(left, extents):
        return None
    rows, inner, columns = map(int, extents)
    if turned:
        return packed_matmul.row_tile(rows, columns, inner, _registers())
    along = packed_matmul.strip(rows, inner)
    return packed_matmul.tile(rows, columns, _registers()) if along else None


def outer_tile_for(left: Any, right: Any) -> packed_matmul.MatmulTile | None:
    """The tile for `left` (inner, rows), turned, times `right` (inner, columns); None if a library
    serves it better."""
    extents = (*left.shape, right.shape[1])
    if not _fits(left, extents):
        return None
    inner, rows, columns = map(int, extents)
    return packed_matmul.outer_tile(rows, columns, inner, _registers())


def _registers() -> packed_matmul.Registers:
    return _REGISTERS[max(8, get_simd_32bit_lanes())]


def _fits(left: Any, extents: Any) -> bool:
    known = all(isinstance(d, tir.IntImm) for d in extents)
    return known and str(left.dtype) == packed_matmul.DTYPE


def _tile_of(rows: Any, columns: int) -> packed_matmul.MatmulTile | None:
    known = isinstance(rows, tir.IntImm)
    return packed_matmul.tile(int(rows), columns, _registers()) if known else None


def _offset(statement: Any) -> bool:
    """Whether a stage counts from a buffer's offset, which it does not know: concatenation and
    sorting do, which are loops or calls, not expressions."""
    nodes = _DIALECT.nodes(statement)
    kinds = tir.BufferStore, tir.BufferLoad
    offsets = [n.buffer.elem_offset for n in nodes if isinstance(n, kinds)]
    offsets += [n for n in nodes if isinstance(n, tir.Var) and n.name == "elem_offset"]
    return any(isinstance(offset, tir.Var) for offset in offsets)


_DIALECT = Dialect(
    tvm,
    tir,
    tir,
    tir.Call,
    "get_block",
    "buffer",
    tir.stmt_functor.post_order_visit,
    lambda body, visit: tir.stmt_functor.ir_transform(body, None, visit, ["tir.For"]),
    lambda value, pairs: tir.stmt_functor.substitute(value, dict(pairs)),
)
