"""Convolutions by PyTorch inside functions that TVM builds; see `kernels.blas`.

Transposed ones, because TVM's insert zeros between and around the elements and multiply them, too:
that takes longer, and zero times infinity is NaN. Gradients of weights, because TVM has no kernel.
And those whose weight is an argument, because TVM would lay it out anew in every call. Without a
library, and on a GPU, TVM's stay.
"""

import functools
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relay, te, topi
from tvm.relay.op import strategy

from relascope.engine.building.options import LINKED
from relascope.engine.cpu_kernels import convolutions
from relascope.engine.relay.kernels import blas, linked_convolution
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite
from relascope.passes.relay.training import weight_gradient

_NAME = "relascope.convolution"
_OURS = "NCHW"
"""The result layout that marks a convolution for PyTorch; others name none."""
_KINDS = {
    "conv1d_transpose": ("NCW", "IOW"),
    "conv2d_transpose": ("NCHW", "IOHW"),
    "conv3d_transpose": ("NCDHW", "IODHW"),
    "conv2d": ("NCHW", "OIHW"),
    "conv2d_backward_weight": ("NCHW", "NCHW"),  # of the gradient and the data
}
"""Operators, and PyTorch's layouts of their operands."""


@functools.cache
def register() -> None:
    tvm.register_func(_NAME, _run, override=True)
    for kind in _KINDS:
        given = getattr(strategy.generic, f"{kind}_strategy")
        theirs = getattr(strategy.x86, f"{kind}_strategy_cpu", given.__wrapped__)
        given.register("cpu", _chosen(kind, theirs), True)


def _chosen(kind: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
        options = _options(kind, attrs, inputs) if target.libs else ""
        if not options or (kind == "conv2d" and str(attrs.out_layout) != _OURS):
            return theirs(attrs, inputs, out_type, target)
        ours = relay.op.OpStrategy()
        schedule = strategy.generic.wrap_topi_schedule(topi.generic.schedule_extern)
        ours.add_implementation(functools.partial(_stage, options), schedule, _NAME)
        return ours

    return chosen


def _options(kind: str, attrs: Any, inputs: Any) -> str:
    """PyTorch's options, as text; "" if it has no such convolution. `kind` is a key of `_KINDS`,
    `inputs` are the operands, or their types."""
    dtypes = {str(t.dtype) for t in inputs} | ({attrs.out_dtype} - {"", "same"})
    padding = [int(p) for p in attrs.padding]
    half = len(padding) // 2
    layouts = str(attrs.data_layout), str(attrs.kernel_layout)
    if (
        len(dtypes) > 1
        or not dtypes <= blas.FLOATS.keys()
        or layouts != _KINDS[kind]
        or str(attrs.out_layout) not in ("", layouts[0], "OIHW")
        or (len(padding) == 2 * len(attrs.strides) and padding[:half] != padding[half:])
    ):
        return ""
    padding = padding[: len(attrs.strides)] * (len(attrs.strides) if len(padding) == 1 else 1)
    more = attrs.output_padding if kind.endswith("transpose") else [0] * len(attrs.strides)
    each = attrs.strides, padding, attrs.dilation, more, [attrs.groups]
    return ";".join([kind, *(",".join(str(int(v)) for v in values) for values in each)])


def _stage(options: str, attrs: Any, inputs: Any, out_type: Any) -> list[Any]:
    shapes = [t.shape for t in (*inputs, out_type)]
    *given, made = (tvm.tir.decl_buffer(s, inputs[0].dtype) for s in shapes)

    def call(ins: Any, outs: Any) -> Any:
        linked = LINKED.get() and linked_convolution.statement(*_parsed(options), *ins, *outs)
        return linked or tvm.tir.call_packed(_NAME, *ins, *outs, options)

    about = {"name": "convolution", "in_buffers": given, "out_buffers": [made]}
    return [te.extern(out_type.shape, list(inputs), call, **about)]


def _run(one: Any, other: Any, out: Any, options: str) -> None:
    kind, how = _parsed(options)
    left, right, result = map(blas.tensor, (one, other, out))
    if kind == "conv2d_backward_weight":
        convolutions.weight_gradient(right, left, how, result)
        return
    if kind == "conv2d":  # TVM's depthwise weights have channels in another shape
        right = right.view(result.shape[1], left.shape[1] // how[-1], *right.shape[2:])
    convolutions.convolution(left, right, how, result)


@functools.lru_cache(4096)
def _parsed(options: str) -> tuple[str, convolutions.Options]:
    """The kind, a key of `_KINDS`, and PyTorch's options."""
    kind, *each = options.split(";")
    strides, padding, dilation, more, (groups,) = (tuple(map(int, v.split(","))) for v in each)
    return kind, (strides, padding, dilation, kind.endswith("transpose"), more, groups)


def served(program: RelayProgram) -> RelayProgram:
    """The program with convolutions marked for PyTorch, and gradients of weights that it lacks as
    products."""

    def visit(call: Any, args: list[Any]) -> Any:
        name, attrs = op_name(call), call.attrs
        types = [e.checked_type for e in (*call.args, call)]
        if name == weight_gradient.NAME:
            known = _options(name.removeprefix("nn."), attrs, types)
            return None if known else weight_gradient.unfolded(attrs, args, types)
        if name != "nn.conv2d" or isinstance(call.args[1], relay.Constant):
            return None
        if not _options("conv2d", attrs, types):
            return None
        kept = {k: attrs[k] for k in attrs.keys()} | {"out_layout": _OURS}  # noqa: SIM118
        return relay.nn.conv2d(*args, **kept)

    return rewrite(program, visit)


def unserved(program: RelayProgram) -> RelayProgram:
    """A program as TVM's own kernels take it: with zeros in the weights of dilated transposed
    convolutions, and gradients of weights as products."""

    def visit(call: Any, args: list[Any]) -> Any:
        name = op_name(call)
        if name == weight_gradient.NAME:
            types = [e.checked_type for e in (*call.args, call)]
            return weight_gradient.unfolded(call.attrs, args, types)
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
