"""Images with channels last, between a function's convolutions.

A library's convolutions then need not convert images in each call. Elementwise operators and sums
between them follow; other readers of an image get it with channels first. Captures with channels
last stay so from the forward to the backward."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax
from tvm.ir import Call
from tvm.relax import op
from tvm.tirx import IntImm

from relascope.core.operators import EACH
from relascope.passes.relax.ir import rewrite
from relascope.passes.relax.ir.rewrite import op_name, shape
from relascope.passes.relax.transpose_dedup import axes_of

TAKES, GIVES = "relascope.takes_channels_last", "relascope.gives_channels_last"
"""Attributes of a function: names of parameters, and places of results, that have channels last
where the target has a library for convolutions."""
TURNED = "turned"
"""The name of variables that have an existing value in another order of axes or another shape."""
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Axes of an image with channels first in the order of one with channels last, and back."""

LAYOUTS = {
    ("nn.conv2d", "NCHW", "OIHW"): ("NHWC", "OIHW", "NHWC"),
    ("nn.conv2d", "CNHW", "IOHW"): ("CHWN", "IHWO", "CNHW"),
    ("nn.conv2d_transpose", "NCHW", "IOHW"): ("NHWC", "IOHW", "NHWC"),
}
"""By operator and layouts of data and weight: the layouts with channels last, and the result's."""
Served = Callable[..., Any]
"""From a convolution to a library's call for it, typed; None if there is none. For the gradient of
a depthwise weight, further arguments are the data and the result's gradient with channels last,
which the call then takes instead."""

_SUMS = {"sum": op.sum, "mean": op.mean, "max": op.max, "min": op.min}


def in_a_row(bound: Sequence[rewrite.Binding]) -> set[int]:
    """Handles of the variables that are images made by a convolution, or elementwise from such
    images; none if channels stay first."""
    found: set[int] = set()
    for variable, value in bound if _gains([value for _, value in bound]) else ():
        of_image = _layouts(value) is not None and str(value.attrs.data_layout) == "NCHW"
        of_image |= op_name(value) in EACH and any(a.__chandle__() in found for a in value.args)
        if of_image and _is_image(variable):
            found.add(variable.__chandle__())
    return found


def moved(function: Any, served: Served) -> Any:
    """A function of one block with channels last between a library's convolutions of static shapes,
    and where its attributes say so; apart from those, the results are the same. Raises EngineError
    of kind "usage" if a function with such attributes branches."""
    blocks, attrs = function.body.blocks, dict(function.attrs or {})
    plain = len(blocks) == 1 and isinstance(blocks[0], relax.DataflowBlock)
    gains = plain and _gains([b.value for b in blocks[0].bindings])
    if not gains and not attrs.keys() & {TAKES, GIVES}:
        return function
    images = _Images(function.params, frozenset(map(str, attrs.get(TAKES, ()))), served)
    bound = rewrite.bindings(function)
    for variable, value in bound:
        images.add(variable, value)
    gives = frozenset(map(int, attrs.get(GIVES, ())))
    returned = [
        images.last(r) if k in gives else images.first(r)
        for k, r in enumerate(rewrite.results(function, bound))
    ]
    return rewrite.function_of(images.params, images.bound, returned, function.attrs)


def _gains(values: Sequence[Any]) -> bool:
    """Whether channels last make a function faster: its convolutions with groups then take half the
    time. Without any, other convolutions would be slower on two threads."""
    return any(_layouts(value) and int(value.attrs.groups) > 1 for value in values)


def _is_image(expr: Any) -> bool:
    kind = expr.ty
    if not isinstance(kind, relax.TensorType) or kind.ndim != 4:
        return False
    size = kind.shape
    return isinstance(size, relax.ShapeExpr) and all(isinstance(d, IntImm) for d in size.values)


def _layouts(call: Any) -> tuple[str, str, str] | None:
    if op_name(call) not in ("nn.conv2d", "nn.conv2d_transpose"):
        return None
    attrs, dtypes = call.attrs, {str(e.ty.dtype) for e in (*call.args, call)}
    if str(attrs.out_layout) != str(attrs.data_layout) or not all(map(_is_image, call.args)):
        return None
    return LAYOUTS.get(_key(call)) if dtypes in ({"float32"}, {"float64"}) else None


class _Images:
    """A function's bindings, rewritten, and the forms of each image so far."""

    def __init__(self, params: Sequence[Any], taken: frozenset[str], served: Served) -> None:
        self._served = served
        self.bound: list[rewrite.Binding] = []
        self.params: list[Any] = []
        self._builder = relax.BlockBuilder()
        self._first: dict[int, Any] = {}
        self._last: dict[int, Any] = {}
        self._values: dict[int, Any] = {}
        for old in params:
            new = old
            if str(old.name) in taken:
                new = relax.Var(old.name, relax.TensorType(_moved(shape(old)), old.ty.dtype))
                self._last[old.__chandle__()] = new
            else:
                self._first[old.__chandle__()] = old
            self.params.append(new)

    def first(self, expr: Any) -> Any:
        """An expression in the function's own order of axes."""
        handle = expr.__chandle__()
        if handle not in self._first and handle in self._last:
            self._first[handle] = self._turned(self._last[handle], FIRST)
        return self._first.get(handle, expr)

    def last(self, expr: Any) -> Any:
        """An image with channels last."""
        handle = expr.__chandle__()
        if handle not in self._last:
            made = self._made_last(expr)
            self._last[handle] = self._turned(self.first(expr), LAST) if made is None else made
        return self._last[handle]

    def _made_last(self, expr: Any) -> Any:
        """An image computed from another image, with channels last; None for other images."""
        value = self._values.get(expr.__chandle__())
        if value is None or (op_name(value) not in EACH and op_name(value) != "broadcast_to"):
            return None
        images = [a for a in value.args if _is_image(a) and a.__chandle__() not in self._last]
        if len(images) > 1 or not any(map(_is_image, value.args)):
            return None
        for image in images:
            self.last(image)
        made = self._instead(value)
        return None if made is None else self._bind(made[0], str(expr.name))

    def add(self, variable: Any, value: Any) -> None:
        """Add a binding of the function, with channels last where possible."""
        handle = variable.__chandle__()
        self._values[handle] = value
        instead = self._instead(value) if isinstance(value, Call) else None
        if instead is None:
            held = {v.__chandle__(): v for v in rewrite.variables(value)}
            moved = held.keys() & (self._last.keys() | self._first.keys())
            plain = {h: self.first(held[h]) for h in moved}
            self.bound.append((variable, rewrite.substituted(value, plain)))
            self._first[handle] = variable
            return
        call, is_last = instead
        made = self._bind(call, str(variable.name))
        if is_last and not _is_image(variable):  # a sum that leaves out axes of one element
            plain = op.reshape(self._turned(made, FIRST), shape(variable))
            made, is_last = self._bind(plain, str(variable.name)), False
        (self._last if is_last else self._first)[handle] = made

    def _instead(self, call: Any) -> tuple[Any, bool] | None:
        """A call on images with channels last, and whether its result is one; None if it takes
        none, or its operator cannot take one."""
        name = op_name(call)
        if _layouts(call) is not None:
            return self._convolution(call)
        images = [a for a in call.args if a.__chandle__() in self._last]
        if not images or any(getattr(a.ty, "ndim", 0) > 4 for a in call.args):
            return None
        if name in EACH:
            return rewrite.with_args(call, [self._operand(a) for a in call.args]), True
        if name == "broadcast_to" and len(call.args[1].values) == 4:
            return op.broadcast_to(self.last(call.args[0]), _moved(call.args[1].values)), True
        if name == "collapse_sum_to":
            size = [1] * 4 + [int(d) for d in call.args[1].values]
            return op.collapse_sum_to(self.last(call.args[0]), _moved(size[-4:])), True
        if name in _SUMS and call.attrs.axis is not None:
            return self._sum(call, [int(a) % 4 for a in call.attrs.axis])
        if name == "nn.pad" and rewrite.is_floating(call.args[0]):
            around = [int(w) for w in call.attrs.pad_width]
            around = [w for axis in LAST for w in around[2 * axis : 2 * axis + 2]]
            attrs = dict(pad_mode=str(call.attrs.pad_mode), pad_value=float(call.attrs.pad_value))
            return op.nn.pad(self.last(call.args[0]), around, **attrs), True
        if name == "strided_slice" and all(isinstance(a, relax.Tuple) for a in call.args[1:]):
            axes = [LAST.index(int(a) % 4) for a in call.args[1].fields]
            rest = [[int(v) for v in part.fields] for part in call.args[2:]]
            return op.strided_slice(self.last(call.args[0]), axes, *rest), True
        return None

    def _convolution(self, call: Any) -> tuple[Any, bool] | None:
        data, weight, result = LAYOUTS[_key(call)]
        if int(call.attrs.groups) > 1 and (pair := self._of_depthwise_weight(call)):
            made = self._served(call, *map(self.last, pair))
            if made is not None:
                return made, False
        kernel = call.args[1]
        kernel = self.last(kernel) if weight == "IHWO" else self.first(kernel)
        make = op.nn.conv2d if op_name(call) == "nn.conv2d" else op.nn.conv2d_transpose
        given = ("strides", "padding", "dilation", *["output_padding"] * (make is not op.nn.conv2d))
        options = {name: [int(v) for v in getattr(call.attrs, name)] for name in given}
        layouts = {"data_layout": data, "kernel_layout": weight, "out_layout": result}
        groups = int(call.attrs.groups)
        made = make(self.last(call.args[0]), kernel, groups=groups, **options, **layouts)
        made = self._builder.normalize(made)
        return None if self._served(made) is None else (made, result == "NHWC")

    def _of_depthwise_weight(self, call: Any) -> tuple[Any, Any] | None:
        """The data and the result's gradient in the convolution that `training.conv_gradient` makes
        for a depthwise weight, with the batch in place of channels; None for other convolutions."""
        data, window = call.args
        channels, batch, *size = shape(window)
        grad = self._behind(window, "reshape")
        if batch > 1:
            grad = self._behind(window, "permute_dims", [1, 0, 2, 3])
            apart = self._behind(self._behind(data, "reshape"), "permute_dims", [2, 1, 0, 3, 4])
            data = self._behind(apart, "reshape")
        wanted = ((batch, channels, *shape(call.args[0])[2:]), (batch, channels, *size))
        images = data, grad
        if not all(i is not None and _is_image(i) for i in images):
            return None
        return images if (shape(data), shape(grad)) == wanted else None

    def _behind(self, expr: Any, name: str, axes: Sequence[int] | None = None) -> Any:
        """The operand of a call of this operator, with these axes if any; else None."""
        value: Any = None if expr is None else self._values.get(expr.__chandle__())
        fits = op_name(value) == name and (axes is None or axes_of(value) == axes)
        return value.args[0] if fits else None

    def _operand(self, expr: Any) -> Any:
        """The other operand of an elementwise operator on an image, aligned with its last axes."""
        kind = expr.ty
        if not isinstance(kind, relax.TensorType) or kind.ndim == 0:
            return expr
        if kind.ndim == 4:
            return self.last(expr)
        size = (*[1] * (4 - kind.ndim), *shape(expr))
        return self._turned(self._bind(op.reshape(self.first(expr), size), TURNED), LAST)

    def _sum(self, call: Any, axes: Sequence[int]) -> tuple[Any, bool] | None:
        keeps = bool(call.attrs.keepdims)
        left = [LAST.index(axis) for axis in range(4) if axis not in axes]
        if not keeps and left != sorted(left):
            return None
        places = sorted(LAST.index(axis) for axis in axes)
        return _SUMS[op_name(call)](self.last(call.args[0]), places, keepdims=keeps), keeps

    def _bind(self, expr: Any, name: str) -> Any:
        made = self._builder.normalize(expr)
        variable = relax.DataflowVar(name, made.ty)
        self.bound.append((variable, made))
        return variable

    def _turned(self, expr: Any, axes: Sequence[int]) -> Any:
        """An image with its axes in another order; a reshape if no element moves."""
        size = shape(expr)
        new, still = [size[axis] for axis in axes], [axis for axis in axes if size[axis] > 1]
        moves = still != sorted(still)
        return self._bind(op.permute_dims(expr, axes) if moves else op.reshape(expr, new), TURNED)


def _moved(size: Any) -> list[int]:
    return [int(size[axis]) for axis in LAST]


def _key(call: Any) -> tuple[str, str, str]:
    return op_name(call), str(call.attrs.data_layout), str(call.attrs.kernel_layout)
