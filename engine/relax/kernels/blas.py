"""Matrix products and convolutions by PyTorch's libraries inside functions that TVM builds.

TVM has no fast matmuls for the CPU. With `building.targets.BLAS` in the target, `relax.matmul`,
with the transposes of its operands' last axes, calls a function registered here, in which
PyTorch writes into TVM's tensor; so do convolutions and attention
(`engine.relax.kernels.convolution`, `engine.relax.kernels.attention`).
"""

import functools
import math
from typing import Any

import torch
import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator

from relascope.engine.building.executables import tensor_of
from relascope.engine.cpu_kernels import packed_matmul
from relascope.engine.cpu_kernels.packed_matmul import AVX2, AVX512, Registers
from relascope.engine.cpu_kernels.schedules import FEW_FLOPS
from relascope.engine.relax.kernels import scattering
from relascope.engine.relax.kernels.convolution import TURNED, dispatched
from relascope.passes.relax.ir.rewrite import op_name
from relascope.passes.relax.transpose_dedup import axes_of

_NAME = "relascope.matmul"
_SERVED = ("relax.matmul", "relax.nn.conv2d", *TURNED)
_PACKED = {"primfunc_name_hint": "packed_matmul", "primfunc_attrs": {"op_pattern": 4}}
"""Lets TVM fuse following operators into such a kernel: its pattern kOutEWiseFusable."""
_FLOATS = ("float32", "float64")
OPAQUE = 8
"""TVM's mark of a kernel that it fuses nothing with."""


@functools.cache
def register() -> None:
    """Register the matmuls with TVM, one for each choice of transposed operands."""
    for name, turns in TURNS.items():
        tvm.register_global_func(name, functools.partial(_matmul, *turns), override=True)


def _name(turn_a: bool, turn_b: bool) -> str:
    return f"{_NAME}_{'t' if turn_a else 'n'}{'t' if turn_b else 'n'}"


TURNS = {_name(a, b): (a, b) for a in (False, True) for b in (False, True)}
"""By the name of a matmul, which of its operands it transposes."""


def symbol_of(call: Any) -> str:
    if op_name(call) not in ("call_tir", "call_dps_packed", "call_pure_packed", "call_tir_inplace"):
        return ""
    callee = call.args[0]
    return str(getattr(callee, "name_hint", "") or getattr(callee, "global_symbol", ""))


def _matmul(turn_a: bool, turn_b: bool, a: Any, b: Any, out: Any) -> None:
    left, right = tensor_of(a), tensor_of(b)
    left = left.mT if turn_a else left
    right = right.mT if turn_b else right
    torch.matmul(left, right, out=tensor_of(out))


def dispatch(
    mod: Any, served: bool = True, registers: Registers | None = None, on_gpu: bool = False
) -> Any:
    """The module with its floating-point matmuls and convolutions as calls of PyTorch, if `served`;
    with `on_gpu`, also its scattering operators. With the `registers` of a processor, matmuls with
    constant weights become kernels of ours where these are faster
    (`engine.cpu_kernels.packed_matmul`)."""
    rewriter = _BlasRewriter(mod)
    rewriter.served, rewriter.registers = served, registers
    rewriter.on_gpu = on_gpu and served
    made = {
        name: rewriter.visit_expr(function)
        for name, function in mod.functions.items()
        if isinstance(function, relax.Function)
    }
    kernels = rewriter.builder_.get().functions
    return relax.transform.DeadCodeElimination()(tvm.IRModule({**kernels, **made}))


@mutator
class _BlasRewriter(PyExprMutator):
    served = True
    registers: Registers | None = None
    on_gpu = False

    def visit_call_(self, call: Any) -> Any:
        made = self.visit_expr_post_order(call)
        if not isinstance(made.op, tvm.ir.Op):
            return made
        scattered = scattering.dispatched(made) if self.on_gpu else None
        if scattered is not None:
            return scattered
        if made.op.name not in _SERVED:
            return made
        types = [call.ty, *(a.ty for a in made.args)]
        dtypes = {str(t.dtype) for t in types}
        if len(dtypes) > 1 or not dtypes <= set(_FLOATS):
            return made
        if made.op.name != "relax.matmul":
            instead = dispatched(self.builder_.normalize(made)) if self.served else None
        else:
            plain = any(int(t.ndim) < 2 for t in types)
            instead = None if plain else self.product(made, call.ty)
        return made if instead is None else instead

    def product(self, call: Any, kind: Any) -> Any | None:
        """A matmul by a kernel of ours or the library; None to leave it to TVM."""
        registers = self.registers
        instead = self.packed(call, registers) if registers else None
        if instead is not None:
            return instead
        if not self.served or (registers and _is_small(call)):
            return None
        (left, turn_a), (right, turn_b) = (self.turned(a) for a in call.args)
        return relax.op.call_dps_packed(_name(turn_a, turn_b), (left, right), kind)

    def packed(self, call: Any, registers: Registers) -> Any | None:
        """A matmul as a product of `packed_matmul`; None if a library is faster."""
        left, (right, turned) = call.args[0], self.turned(call.args[1])
        if self.turned(left)[1]:
            return None if turned else self.outer(call, registers)
        if isinstance(right, tvm.ir.Var):
            bound = self.lookup_binding(right)
            right = right if bound is None else bound
        extents = [*left.ty.shape, *call.ty.shape]
        if not _fits(extents, call) or right.ty.ndim != 2:
            return None
        *outer, inner = map(int, left.ty.shape)
        rows = math.prod(outer)
        columns, make = int(extents[-1]), packed_matmul.product
        tile = packed_matmul.tile(rows, columns, registers)
        if isinstance(right, tvm.ir.GenericConst):
            if tile is not None:
                weight = right.value.numpy()
                right = relax.const(packed_matmul.panels(weight.T if turned else weight, tile))
        elif turned:
            tile = packed_matmul.row_tile(rows, columns, inner, registers)
            make = packed_matmul.dots
            right = self.turned(call.args[1])[0]
        else:
            tile = tile if packed_matmul.strip(rows, inner) else None
            right = call.args[1]
        if tile is None:
            return None
        shape = outer if tile.within(outer) else [rows]
        compute = functools.partial(make, te, tvm.tirx, tile=tile, outer=shape)
        result = self.builder_.call_te(compute, left, right, **_PACKED)
        return result if shape == outer else relax.op.reshape(result, call.ty.shape)

    def outer(self, call: Any, registers: Registers) -> Any | None:
        """A matmul with a transposed left operand as a sum of outer products, if they are few."""
        left, right = self.turned(call.args[0])[0], call.args[1]
        extents = [*left.ty.shape, *right.ty.shape]
        if not _fits(extents, call) or len(extents) != 4:
            return None
        inner, rows, _, columns = map(int, extents)
        tile = packed_matmul.outer_tile(rows, columns, inner, registers)
        if tile is None:
            return None
        compute = functools.partial(packed_matmul.outer_products, te, tile=tile)
        return self.builder_.call_te(compute, left, right, **_PACKED)

    def turned(self, operand: Any) -> tuple[Any, bool]:
        """The operand without a transpose of its last two axes, and whether it had one."""
        bound = self.lookup_binding(operand) if isinstance(operand, tvm.ir.Var) else None
        if bound is not None and op_name(bound) == "permute_dims":
            rank = int(operand.ty.ndim)
            if axes_of(bound) == [*range(rank - 2), rank - 1, rank - 2]:
                return bound.args[0], True
        return operand, False


def registers_of(target: Any) -> Registers:
    """The vector registers that code for a TVM target uses."""
    return AVX512 if tvm.target.codegen.target_has_features("avx512f", target) else AVX2


def all_static(extents: Any) -> bool:
    return all(isinstance(d, tvm.tirx.IntImm) for d in extents)


def _fits(extents: Any, call: Any) -> bool:
    """Whether `packed_matmul` has products of this type, with these static extents."""
    return all_static(extents) and str(call.ty.dtype) == packed_matmul.DTYPE


def _is_small(call: Any) -> bool:
    """Whether calling a library costs more than multiplying."""
    extents = [*call.ty.shape, call.args[0].ty.shape[-1]]
    return all_static(extents) and 2 * math.prod(int(d) for d in extents) < FEW_FLOPS
