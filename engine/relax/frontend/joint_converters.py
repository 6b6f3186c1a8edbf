"""Converts the ATen operators that only joint graphs have to Relax.

If Relax has no operator for one of PyTorch's backwards, the gradient of the forward's operator
replaces it: TVM's own or ours (`passes.relax.training.operator_gradients`)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node
from tvm import relax

from relascope.core.errors import EngineError
from relascope.engine.relax.frontend.converters import (
    Convert,
    Converter,
    convolved,
    dtype_name,
    variable,
)
from relascope.passes.relax.ir.rewrite import op_name, shape
from relascope.passes.relax.training.operator_gradients import OWN
from relascope.passes.relax.training.recorder import bound

_aten = torch.ops.aten

_BY_NAME = (
    "_adaptive_avg_pool2d_backward avg_pool2d_backward constant_pad_nd convolution_backward "
    "embedding_dense_backward max_pool2d_with_indices max_pool2d_with_indices_backward "
    "native_batch_norm native_layer_norm select_backward slice_backward"
)
"""Operators with a converter of the same name."""


class JointConverter(Converter):
    """See the module's docstring, and `engine.relax.frontend.converters`."""

    def create_convert_map(self) -> dict[str, Convert]:
        """The map for forwards, with what joint graphs also need."""
        ours: dict[str, Convert] = {f"{n}.default": getattr(self, n) for n in _BY_NAME.split()}
        ours |= {
            "_softmax.default": partial(self.softmax, self.op.nn.softmax),
            "alias.default": self.same,
            "detach.default": self.same,
            "pow.Tensor_Scalar": self.power,
            "prod.dim_int": self.product,
            "scalar_tensor.default": partial(self.filled, 0),
            "squeeze.dims": self.squeeze,
        }
        return {**super().create_convert_map(), **ours}

    def check(self, node: Node, results: Any) -> None:
        """Check a result's type against PyTorch's; several results are checked when picked out."""
        if results is not None and not isinstance(results, list):
            super().check(node, results)

    # Gradients of single operators.

    def backward(self, node: Node, call: Any, grad: Any) -> list[Any]:
        """The gradients of a Relax call's arguments, bound. The `call` of the forward's operator is
        not made, and arguments that its gradient does not read need only types; `grad` is the
        gradient of its result."""
        builder = self.block_builder
        call = builder.normalize(call)
        gradient = OWN.get(op_name(call)) or call.op.get_attr("FPrimalGradient")
        result = relax.Var("result", call.ty)
        try:
            made = gradient(result, call, grad, builder)
        except EngineError as wrong:
            self.refuse(node, f"{wrong.message[:1].upper()}{wrong.message[1:]}.", wrong.hint)
        return bound(made, self.block_builder.emit)

    def like(self, node: Any) -> Any:
        """A variable of a node's type, for gradients that only read the type."""
        value = node.meta["val"]
        return variable("data", value.shape, dtype_name(value.dtype))

    def convolution_backward(self, node: Node) -> list[Any]:
        grad, data, weight, _, *options, wanted = self.retrieve_args(node)
        if len(shape(data)) > 4:
            self.refuse(node, "The gradient of a 3D convolution cannot be imported.")
        made: list[Any] = [None, None, None]
        if wanted[2]:
            made[2] = self.op.sum(grad, [i for i in range(len(shape(data))) if i != 1])
        if wanted[0] or wanted[1]:
            made[:2] = self.backward(node, convolved(relax.op, data, weight, *options), grad)
        return made

    def max_pool2d_with_indices(self, node: Node) -> list[Any]:
        """Without the indices, which have no counterpart; the backward finds them again."""
        for item in node.users:
            for reader in item.users if item.args[1] == 1 else ():
                if reader.target is not _aten.max_pool2d_with_indices_backward.default:
                    self.refuse(node, "The indices of a max pool cannot be imported.")
        return [self.block_builder.emit(self.pool(node, *self.retrieve_args(node))), None]

    def max_pool2d_with_indices_backward(self, node: Node) -> Any:
        grad, data, *options = self.retrieve_args(node)
        return self.backward(node, self.pool(node, data, *options[:-1]), grad)[0]

    def pool(self, node: Node, data: Any, size: Any, *options: Any) -> Any:
        defaults: list[Any] = [(), (0,), (1,), False]
        stride, padding, dilation, ceil = [*options, *defaults[len(options) :]]
        if len(shape(data)) != 4:
            message = "A max pool of an image without a batch cannot be imported."
            self.refuse(node, message, "Give the image a batch of one.")
        size, stride, padding, dilation = map(_pair, (size, stride or size, padding, dilation))
        if dilation != [1, 1] and self.model.differentiable:
            self.refuse(node, "The gradient of a dilated max pool cannot be imported.")
        return relax.op.nn.max_pool2d(data, size, stride, padding * 2, dilation, bool(ceil))

    def avg_pool2d_backward(self, node: Node) -> Any:
        grad, data, size, stride, padding, ceil, counted, divisor = self.retrieve_args(node)
        if divisor is not None or len(shape(data)) != 4:
            message = "The gradient of this average pool cannot be imported."
            self.refuse(node, message, "Leave out divisor_override, and give the image a batch.")
        size, stride, padding = map(_pair, (size, stride or size, padding))
        options = {"ceil_mode": ceil, "count_include_pad": counted}
        call = relax.op.nn.avg_pool2d(data, size, stride, padding * 2, **options)
        return self.backward(node, call, grad)[0]

    def _adaptive_avg_pool2d_backward(self, node: Node) -> Any:
        grad, data = self.retrieve_args(node)
        call = relax.op.nn.adaptive_avg_pool2d(data, list(shape(grad))[2:])
        return self.backward(node, call, grad)[0]

    def slice_backward(self, node: Node) -> Any:
        grad, _, axis, start, end, step = self.retrieve_args(node)
        end = min(end, node.meta["val"].shape[axis])
        call = relax.op.strided_slice(self.like(node), [axis], [start], [end], [step])
        return self.backward(node, call, grad)[0]

    def select_backward(self, node: Node) -> Any:
        grad, size, axis, index = self.retrieve_args(node)
        index %= size[axis]
        grad = self.op.expand_dims(grad, axis)
        call = relax.op.strided_slice(self.like(node), [axis], [index], [index + 1])
        return self.backward(node, call, grad)[0]

    # Writing at places.

    def embedding_dense_backward(self, node: Node) -> Any:
        """Rows added at their indices, except at the padding row."""
        grad, indices, rows, padding, by_frequency = self.retrieve_args(node)
        if by_frequency:
            self.refuse(node, "scale_grad_by_freq of an embedding cannot be imported.")
        size = shape(grad)[-1]
        if padding >= 0:
            hidden = self.op.expand_dims(self.op.equal(indices, self.number(padding, indices)), -1)
            grad = self.op.where(hidden, self.number(0.0, grad), grad)
        grad = self.op.reshape(grad, [-1, size])
        indices = self.op.reshape(indices, [-1, 1])
        zeros = self.op.zeros([rows, size], str(grad.ty.dtype))
        return self.op.scatter_nd(zeros, indices, grad, "add")

    # Normalisations and reductions.

    def native_batch_norm(self, node: Node) -> list[Any]:
        """The result, and in train mode, where a norm has no running statistics here, the batch's
        mean and one over its deviation."""
        data, gamma, beta, mean, variance, training, _, epsilon = self.retrieve_args(node)
        if not training:
            return [self.by_statistics(data, gamma, beta, mean, variance, epsilon), None, None]
        size = shape(data)
        along = [size[1]] + [1] * (len(size) - 2)
        mean, centred, spread = self.moments(data, [i for i in range(len(size)) if i != 1])
        spread = self.op.add(spread, self.number(epsilon, data))
        # One factor a channel, as in PyTorch: the gradient sums over the images once.
        scale = self.number(1.0, data) if gamma is None else self.op.reshape(gamma, along)
        result = self.op.multiply(centred, self.op.divide(scale, self.op.sqrt(spread)))
        if beta is not None:
            result = self.op.add(result, self.op.reshape(beta, along))
        saved = (mean, self.op.rsqrt(spread))
        return [result, *(self.op.reshape(t, [size[1]]) for t in saved)]

    def moments(self, data: Any, axes: list[int]) -> tuple[Any, Any, Any]:
        """The mean along axes, the distances to it, and their mean square; axes are kept."""
        mean = self.mean_of(data, axes)
        centred = self.op.subtract(data, mean)
        return mean, centred, self.mean_of(self.op.multiply(centred, centred), axes)

    def mean_of(self, data: Any, axes: list[int]) -> Any:
        """The mean along axes, which are kept, one axis at a time. TVM sums serially; shorter sums
        round less. PyTorch sums in float64, and 50 layers of batch norm magnify the difference."""
        for axis in reversed(axes):
            data = self.op.mean(data, [axis], keepdims=True)
        return data

    def native_layer_norm(self, node: Node) -> list[Any]:
        """All three results, which the backward reads; TVM's returns the first for each."""
        data, over, gamma, beta, epsilon = self.retrieve_args(node)
        mean, centred, spread = self.moments(data, list(range(-len(over), 0)))
        deviation = self.op.rsqrt(self.op.add(spread, self.number(epsilon, data)))
        result = self.op.multiply(centred, deviation)
        result = result if gamma is None else self.op.multiply(result, gamma)
        return [result if beta is None else self.op.add(result, beta), mean, deviation]

    def power(self, node: Node) -> Any:
        """A small integer exponent as products, as TVM itself asks."""
        base, exponent = self.retrieve_args(node)
        if exponent not in (2, 3):
            return super().power(node)
        square = self.op.multiply(base, base)
        return square if exponent == 2 else self.op.multiply(square, base)

    def product(self, node: Node) -> Any:
        data, axis, keep = (*self.retrieve_args(node), False)[:3]
        return self.op.prod(data, axis, keepdims=bool(keep))

    # Shapes.

    def constant_pad_nd(self, node: Node) -> Any:
        """TVM's has no negative padding, which cuts off."""
        data, around, value = (*self.retrieve_args(node), 0.0)[:3]
        rank = len(shape(data))
        pairs = [(0, 0)] * (rank - len(around) // 2)
        pairs += list(zip(around[::2], around[1::2], strict=True))[::-1]
        if any(p < 0 for pair in pairs for p in pair):
            begin = [max(0, -low) for low, _ in pairs]
            end = [d - max(0, -high) for d, (_, high) in zip(shape(data), pairs, strict=True)]
            data = self.op.strided_slice(data, list(range(rank)), begin, end)
        if not any(p > 0 for pair in pairs for p in pair):
            return data
        widths = [max(0, p) for pair in pairs for p in pair]
        return self.op.nn.pad(data, widths, "constant", float(value))

    def squeeze(self, node: Node) -> Any:
        """TVM's fails if an axis is longer than one; PyTorch keeps that axis."""
        data, axes = self.retrieve_args(node)
        size = shape(data)
        axes = [a for a in axes if size[a] == 1]
        return self.op.squeeze(data, axes) if axes else data


def _pair(value: Sequence[int] | int) -> list[int]:
    """A number for each of two axes; a single one counts for both."""
    values = [value] if isinstance(value, int) else list(value)
    return values * (2 if len(values) == 1 else 1)
