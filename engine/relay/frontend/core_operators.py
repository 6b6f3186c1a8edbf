"""Operators that PyTorch composes others of, and that TVM's frontend lacks or takes too narrowly.

A name in `COMPOSED` is not left to TVM's frontend though it has it: what PyTorch composes it of is
right, or has a gradient, where TVM's is not or has none.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.frontend import pytorch as tvm_frontend

COMPOSED = (
    "acosh.default asinh.default baddbmm.default clamp.Tensor clamp_max.Tensor clamp_min.Tensor "
    "celu.default cosh.default cross_entropy_loss.default div.Scalar_mode div.Tensor_mode "
    "elu.default floor_divide.Scalar floor_divide.default lerp.Scalar lerp.Tensor "
    "roll.default square.default tensor_split.indices tensor_split.sections "
    "tensor_split.tensor_indices_or_sections "
    "log_sigmoid.default logsumexp.default norm.Scalar norm.ScalarOpt_dim "
    "norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype remainder.Scalar remainder.Tensor selu.default "
    "sinh.default softplus.default threshold.default var_mean.correction var_mean.default "
    "var_mean.dim"
)
"""Operators that PyTorch composes, always."""

COMPOSED_IN_TRAINING = (
    "adaptive_avg_pool1d avg_pool1d avg_pool3d einsum grid_sampler grid_sampler_2d "
    "grid_sampler_3d group_norm linalg_vector_norm max_pool1d max_pool3d meshgrid nll_loss "
    "nll_loss_nd nll_loss2d pad prelu reflection_pad1d reflection_pad2d replication_pad1d "
    "replication_pad2d replication_pad3d take upsample_bicubic2d upsample_bilinear2d "
    "upsample_nearest2d upsample_nearest3d upsample_trilinear3d"
)
"""Operators, whatever their overload, whose parts have gradients where Relay has none."""


class CoreOperators(tvm_frontend.PyTorchOpConverter):
    """Converters; see the module's text. A method that has an operator's name converts it."""

    def create_convert_map(self) -> None:
        super().create_convert_map()
        self.convert_map["aten::_convolution"] = self.convolution
        ours: dict[str, Callable[..., Any]] = {
            name: self.same for name in ["alias", "lift_fresh_copy", "positive"]
        }
        ours |= {f"grid_sampler_{n}d": self.grid_sampler for n in (2, 3)}
        ours |= {"_softmax": self.softmax_core, "_log_softmax": self.log_softmax_core}
        ours |= {"_to_copy": self.to_copy, "_unsafe_view": self.convert_map["aten::view"]}
        ours |= {"convolution": self.convolution, "bitwise_or": self.make_elemwise("bitwise_or")}
        ours |= {"cumprod": self.cumprod, "squeeze": self.squeeze}
        self.convert_map.update({f"aten::{name}": convert for name, convert in ours.items()})

    def same(self, inputs: Any, input_types: Any) -> Any:
        return inputs[0]

    def softmax_core(self, inputs: Any, input_types: Any) -> Any:
        return relay.nn.softmax(inputs[0], int(inputs[1]))

    def log_softmax_core(self, inputs: Any, input_types: Any) -> Any:
        return relay.nn.log_softmax(inputs[0], int(inputs[1]))

    def to_copy(self, inputs: Any, input_types: Any) -> Any:
        data, code = inputs[:2]
        if code is None:
            return data
        dtype = tvm_frontend._convert_dtype_value(code)
        if not isinstance(data, relay.Expr):
            return relay.const(data, dtype)
        return data if self.infer_type(data).dtype == dtype else relay.cast(data, dtype)

    def convolution(self, inputs: Any, input_types: Any) -> Any:
        """TVM's takes one number an axis only."""
        rank = len(self.infer_shape(inputs[1])) - 2
        given = [list(v) * rank if len(v) == 1 else v for v in inputs[3:6]]
        rest = inputs[6:]
        if rank > 1 or not self.model.differentiable:
            return super().convolution([*inputs[:3], *given, *rest], input_types)
        # Gradients are known of convolutions of images: this is one of a single column.
        wide = [relay.expand_dims(v, 3) for v in inputs[:2]]
        given = [[*v, e] for v, e in zip(given, (1, 0, 1), strict=True)]
        rest = [rest[0], [*rest[1], 0], *rest[2:]]
        made = super().convolution([*wide, inputs[2], *given, *rest], input_types)
        return relay.squeeze(made, [3])

    def slice(self, inputs: Any, input_types: Any) -> Any:
        """TVM's makes a slice without an end dynamic."""
        begin, end = (
            given if v is None else v
            for v, given in zip(inputs[2:4], (0, sys.maxsize), strict=True)
        )
        return super().slice([*inputs[:2], begin, end, *inputs[4:]], input_types)

    def topk(self, inputs: Any, input_types: Any) -> Any:
        """For a gradient values are taken where the indices say; TVM's alone cannot be laid out.
        What may come in any order comes sorted."""
        if not self.model.differentiable:
            return super().topk([*inputs[:4], True, *inputs[5:]], input_types)
        data, count, axis, largest = inputs[:4]
        end = list(self.infer_shape(data))
        axis = int(axis) % max(len(end), 1)
        end[axis : axis + 1] = [int(count)]
        order = self.argsort([data, axis, largest], input_types)
        found = relay.strided_slice(order, [0] * len(end), end)
        return relay.gather(data, axis, found), found

    def scatter(self, inputs: Any, input_types: Any) -> Any:
        """TVM's takes no axis that is counted from the last, and no number."""
        inputs = [inputs[0], int(inputs[1]) % len(self.infer_shape(inputs[0])), *inputs[2:]]
        if isinstance(inputs[3], int | float):
            number = relay.const(inputs[3], self.infer_type(inputs[0]).dtype)
            inputs[3] = relay.broadcast_to(number, list(self.infer_shape(inputs[2])))
        return super().scatter(inputs, input_types)

    def scatter_add(self, inputs: Any, input_types: Any) -> Any:
        """As `scatter`."""
        inputs = [inputs[0], int(inputs[1]) % len(self.infer_shape(inputs[0])), *inputs[2:]]
        return super().scatter_add(inputs, input_types)

    def searchsorted_common(
        self, ordered: Any, values: Any, out_int32: Any, right: Any, *rest: Any
    ) -> Any:
        """TVM's comparisons take NaN for no larger than any number; PyTorch's stands at the end."""
        dtype = self.infer_type(ordered).dtype
        if "float" not in dtype:
            return super().searchsorted_common(ordered, values, out_int32, right, *rest)
        wide = values if isinstance(values, relay.Expr) else relay.const(values, dtype)
        least = relay.const(-np.inf, dtype)
        found = super().searchsorted_common(
            relay.where(relay.isnan(ordered), least, ordered), wide, out_int32, right, *rest
        )
        end = relay.const(int(self.infer_shape(ordered)[-1]), self.infer_type(found).dtype)
        return relay.where(relay.isnan(wide), end, found)

    def cumprod(self, inputs: Any, input_types: Any) -> Any:
        return relay.cumprod(inputs[0], int(inputs[1]))

    def squeeze(self, inputs: Any, input_types: Any) -> Any:
        """TVM's takes no axis that is longer than 1, which PyTorch leaves as it is."""
        data, size = inputs[0], self.infer_shape(inputs[0])
        axes = list(range(len(size)))
        if len(inputs) > 1:
            given = inputs[1] if isinstance(inputs[1], list) else [inputs[1]]
            axes = sorted({int(a) % max(len(size), 1) for a in given})
        single = [a for a in axes if len(size) and int(size[a]) == 1]
        return relay.squeeze(data, single) if single else data

    def index_put(self, inputs: Any, input_types: Any) -> Any:
        """TVM's knows one index an axis, from the first on, and all of one shape."""
        data, indices, values, accumulate = (*inputs, False)[:4]
        size = [int(d) for d in self.infer_shape(data)]
        if any(v is not None and self.infer_type(v).dtype == "bool" for v in indices):
            return self.masked_put(data, indices, values, accumulate)
        used = [i for i, v in enumerate(indices) if v is not None]
        found = [[int(d) for d in self.infer_shape(indices[i])] for i in used]
        places = list(np.broadcast_shapes(*found))
        rest = [a for a in range(len(size)) if a not in used]
        together = used == list(range(used[0], used[-1] + 1))
        before = [a for a in rest if a < used[0]] if together else []
        after = [a for a in rest if a not in before]
        wide = [*(size[a] for a in before), *places, *(size[a] for a in after)]
        dtype = self.infer_type(data).dtype
        if not isinstance(values, relay.Expr):
            values = relay.const(values, dtype)
        values = relay.broadcast_to(values, wide)
        first, last = len(before), len(before) + len(places)
        if before:
            order = [*range(first, last), *range(first), *range(last, len(wide))]
            values = relay.transpose(values, order)
        rows = relay.stack([relay.broadcast_to(indices[i], places) for i in used], 0)
        order = [*used, *rest]
        moved = relay.transpose(data, order) if order != sorted(order) else data
        made = relay.scatter_nd(moved, rows, values, "add" if accumulate else "update")
        back = [order.index(a) for a in range(len(order))]
        return relay.transpose(made, back) if order != sorted(order) else made

    def masked_put(self, data: Any, indices: Any, values: Any, accumulate: bool) -> Any:
        """A mask chooses, and every chosen element becomes one value."""
        size = list(self.infer_shape(data))
        mask = indices[0]
        single = not isinstance(values, relay.Expr) or not any(
            int(d) != 1 for d in self.infer_shape(values)
        )
        if len(indices) > 1 or accumulate or not single:
            raise ValueError("a mask chooses where values are put: their number is not known")
        values = values if isinstance(values, relay.Expr) else relay.const(values)
        values = relay.cast(relay.reshape(values, []), self.infer_type(data).dtype)
        rank = len(self.infer_shape(mask))
        mask = relay.expand_dims(mask, rank, len(size) - rank) if len(size) > rank else mask
        return relay.where(mask, values, data)

    def scatter_reduce(self, inputs: Any, input_types: Any) -> Any:
        """TVM's always counts in the elements that were there."""
        data, axis, index, source, mode = inputs[:5]
        inputs = [data, int(axis) % len(self.infer_shape(data)), *inputs[2:]]
        if len(inputs) < 6 or inputs[5]:
            return super().scatter_reduce(inputs, input_types)
        dtype = self.infer_type(data).dtype
        least, most = (-np.inf, np.inf)
        if "float" not in dtype:
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        neutral = {"amax": least, "amin": most, "prod": 1}.get(mode, 0)
        places = [int(d) for d in self.infer_shape(index)]
        start = relay.full(relay.const(neutral, dtype), places, dtype)
        axis = int(axis) % len(places)
        cleared = relay.scatter_elements(data, index, start, axis, "update")
        if mode != "mean":
            return super().scatter_reduce([cleared, axis, index, source, mode], input_types)
        one = relay.full(relay.const(1, dtype), places, dtype)
        source = relay.strided_slice(source, [0] * len(places), places)
        total = relay.scatter_elements(cleared, index, source, axis, "add")
        count = relay.scatter_elements(relay.zeros_like(data), index, one, axis, "add")
        return total / relay.maximum(count, relay.const(1, dtype))
