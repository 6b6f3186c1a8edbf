"""Long sums: more precisely, and many at a time.

Many added products, or sums over rows, become one of concatenated operands. The gradient of a
weight used at many steps is a sum of one product for each step: sum(A_t^T B_t) = concat(A)^T
concat(B), which writes the weight once. A bias' gradient is similar.
"""

from typing import Any

from tvm import relax
from tvm_ffi import structural_equal

from relascope.core.errors import EngineError
from relascope.passes.relax.ir import rewrite as ir
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.transpose_dedup import axes_of

FEW = 4
"""Fewer terms stay unmerged."""


def by_axis(mod: Any) -> Any:
    """The module with means of batch norms one axis at a time; see
    `engine.relay.building.beside_convolutions`."""
    try:
        return ir.rewrite(RelaxProgram(mod, {}, (), 0), {"mean": _by_axis}).mod
    except EngineError:  # it branches, or writes into memory
        return mod


def _by_axis(call: Any, maker: ir.Maker) -> Any:
    mean, rank = call.args[0], int(call.args[0].ty.ndim)
    axes = sorted(int(a) % rank for a in call.attrs.axis or ())
    if axes[:1] != [0] or not 1 < len(axes) == rank - 1 or not call.attrs.keepdims:
        return None
    for axis in reversed(axes):
        mean = relax.op.mean(mean, axis, keepdims=True)
    return mean


def merged(mod: Any) -> Any:
    """The module with the alike terms that "main" adds merged, if they are many."""
    main = mod["main"]
    try:
        bound = ir.bindings(main)
    except EngineError:  # it branches, or writes into memory
        return mod
    readers = ir.read_counts(bound, ir.results(main, bound))
    added = {  # read by nothing else, without broadcasting
        arg.__chandle__()
        for _, value in bound
        if ir.op_name(value) == "add"
        for arg in value.args
        if readers[arg.__chandle__()] == 1 and structural_equal(arg.ty, value.ty)
    }

    def rule(call: Any, maker: ir.Maker) -> Any:
        if ir.op_name(call) != "add" or maker.variable.__chandle__() in added:
            return None
        alike: dict[Any, list[Any]] = {None: []}
        todo = list(call.args)
        while todo:
            term = todo.pop()
            value = maker.look(term) if term.__chandle__() in added else term
            if ir.op_name(value) == "add":
                todo.extend(value.args)
            else:
                alike.setdefault(_kind(value, maker), []).append(term)
        rest, *groups = alike.values()
        total: Any = None
        for terms in groups:
            made = [_one([maker.look(t) for t in terms], maker)] if len(terms) >= FEW else terms
            rest = [*made, *rest]
        if all(len(terms) < FEW for terms in groups):
            return None
        for term in rest:
            total = term if total is None else relax.op.add(maker.emit(total), maker.emit(term))
        return total

    return ir.rewrite(RelaxProgram(mod, {}, (), 0), rule).mod


def _kind(value: Any, maker: ir.Maker) -> Any:
    """A key that is equal for terms that can be merged; None for others."""
    name = ir.op_name(value)
    if name == "matmul":
        turned, right = maker.look(value.args[0]), value.args[1]
        pair = value.ty.ndim == right.ty.ndim == 2 and ir.op_name(turned) == "permute_dims"
        kinds = str(turned.ty.dtype), str(right.ty.dtype), str(value.attrs.out_dtype)
        return kinds if pair and axes_of(turned) == [1, 0] else None
    if name not in ("sum", "collapse_sum_to"):
        return None
    given, axes = value.args[0].ty, getattr(value.attrs, "axis", None)
    rows = given.ndim > value.ty.ndim if axes is None else 0 in {int(a) % given.ndim for a in axes}
    return (name, str(axes), str(list(given.shape)[1:])) if rows else None


def _one(terms: list[Any], maker: ir.Maker) -> Any:
    first, product = terms[0], ir.op_name(terms[0]) == "matmul"
    rows = [maker.look(t.args[0]).args[0] if product else t.args[0] for t in terms]
    whole = maker.emit(relax.op.concat(rows, 0))
    if not product:
        return ir.with_args(first, [whole, *first.args[1:]])
    others = maker.emit(relax.op.concat([t.args[1] for t in terms], 0))
    return ir.with_args(first, [relax.op.permute_dims(whole, [1, 0]), others])
