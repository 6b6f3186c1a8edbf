"""Transposed convolutions by PyTorch inside functions that TVM builds; see `kernels.blas`.

TVM's put zeros between the elements that they read and around them, and multiply those as well:
it takes longer, and zero times infinity is NaN. Elsewhere than on a CPU with a library they stay.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import tvm
from tvm import relay, te, topi
from tvm.relay.op import strategy

from relascope.engine.relay.kernels import blas
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite

_NAME = "relascope.transposed_convolution"
_LAYOUTS = {"NCW": "IOW", "NCHW": "IOHW", "NCDHW": "IODHW"}


@functools.cache
def register() -> None:
    tvm.register_func(_NAME, _run, override=True)
    generic = strategy.generic
    for rank in (1, 2, 3):
        given = getattr(generic, f"conv{rank}d_transpose_strategy")
        theirs = getattr(strategy.x86, f"conv{rank}d_transpose_strategy_cpu", given.__wrapped__)
        given.register("cpu", _chosen(theirs), True)


def _chosen(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
        options = _options(attrs, inputs) if target.libs else ""
        if not options:
            return theirs(attrs, inputs, out_type, target)
        ours = relay.op.OpStrategy()
        schedule = strategy.generic.wrap_topi_schedule(topi.generic.schedule_extern)
        ours.add_implementation(functools.partial(_stage, options), schedule, _NAME)
        return ours

    return chosen


def _options(attrs: Any, inputs: Any) -> str:
    """What PyTorch is to be told, as text; "" where it has no such convolution."""
    dtypes = {str(t.dtype) for t in inputs} | ({attrs.out_dtype} - {"", "same"})
    padding = [int(p) for p in attrs.padding]
    half = len(padding) // 2
    layouts = str(attrs.data_layout), str(attrs.kernel_layout)
    if (
        len(dtypes) > 1
        or not dtypes <= blas.FLOATS.keys()
        or _LAYOUTS.get(layouts[0]) != layouts[1]
        or str(attrs.out_layout) not in ("", layouts[0])
        or (len(padding) == 2 * len(attrs.strides) and padding[:half] != padding[half:])
    ):
        return ""
    padding = padding[: len(attrs.strides)] * (len(attrs.strides) if len(padding) == 1 else 1)
    each = attrs.strides, padding, attrs.dilation, attrs.output_padding, [attrs.groups]
    return ";".join(",".join(str(int(v)) for v in values) for values in each)


def _stage(options: str, attrs: Any, inputs: Any, out_type: Any) -> list[Any]:
    shapes = [t.shape for t in (*inputs, out_type)]
    *given, made = (tvm.tir.decl_buffer(s, inputs[0].dtype) for s in shapes)

    def call(ins: Any, outs: Any) -> Any:
        return tvm.tir.call_packed(_NAME, *ins, *outs, options)

    about = {"name": "transposed", "in_buffers": given, "out_buffers": [made]}
    return [te.extern(out_type.shape, list(inputs), call, **about)]


def _run(data: Any, weight: Any, out: Any, options: str) -> None:
    strides, padding, dilation, more, groups = _parsed(options)
    how = strides, padding, dilation, True, more, groups[0]
    result = blas.tensor(out)
    torch.ops.aten.convolution.out(blas.tensor(data), blas.tensor(weight), None, *how, out=result)


@functools.lru_cache(4096)
def _parsed(options: str) -> list[list[int]]:
    return [[int(v) for v in values.split(",")] for values in options.split(";")]


def without_dilation(program: RelayProgram) -> RelayProgram:
    """The transposed convolutions as TVM's own kernels take them: with zeros in their weights."""

    def visit(call: Any, args: list[Any]) -> Any:
        name = op_name(call)
        if not name.endswith("d_transpose") or all(d == 1 for d in call.attrs.dilation):
            return None
        data, weight = args
        rank = len(call.attrs.dilation)
        spread = relay.nn.dilate(weight, [1, 1, *call.attrs.dilation])
        kept = {k: call.attrs[k] for k in call.attrs.keys()}  # noqa: SIM118
        size = [
            (int(k) - 1) * int(d) + 1
            for k, d in zip(call.args[1].checked_type.shape[2:], kept["dilation"], strict=True)
        ]
        kept |= {"dilation": [1] * rank, "kernel_size": size}
        return getattr(relay.nn, name.removeprefix("nn."))(data, spread, **kept)

    return rewrite(program, visit)
