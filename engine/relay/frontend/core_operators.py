"""Converters of core operators that TVM's frontend lacks or takes too narrowly.

Operators in `COMPOSED` are not left to TVM's frontend, although it has them: PyTorch composes them
of operators that are right, or have a gradient, where TVM's converters are wrong or have none.
"""

import sys
from collections.abc import Callable
from typing import Any

from tvm import relay
from tvm.relay.frontend import pytorch as tvm_frontend

COMPOSED = (
    "acosh.default asinh.default baddbmm.default bucketize.Scalar bucketize.Tensor celu.default "
    "chunk.default clamp.Tensor clamp_max.Tensor clamp_min.Tensor cosh.default "
    "cross_entropy_loss.default div.Scalar_mode div.Tensor_mode elu.default floor_divide.Scalar "
    "floor_divide.default hardsigmoid.default hardswish.default lerp.Scalar lerp.Tensor "
    "linspace.Scalar_Tensor linspace.Tensor_Scalar linspace.Tensor_Tensor linspace.default "
    "log_sigmoid.default logsumexp.default max.dim min.dim norm.Scalar norm.ScalarOpt_dim "
    "norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype remainder.Scalar remainder.Tensor roll.default "
    "round.decimals scaled_dot_product_attention.default searchsorted.Scalar searchsorted.Tensor "
    "selu.default sinh.default softplus.default square.default take.default tensor_split.indices "
    "tensor_split.sections tensor_split.tensor_indices_or_sections threshold.default tril.default "
    "triu.default var_mean.correction var_mean.default var_mean.dim"
)
"""Operators that are always composed."""

COMPOSED_IN_TRAINING = (
    "adaptive_avg_pool1d avg_pool1d avg_pool3d einsum grid_sampler grid_sampler_2d "
    "grid_sampler_3d group_norm linalg_vector_norm max_pool1d max_pool3d meshgrid nll_loss "
    "nll_loss_nd nll_loss2d pad prelu reflection_pad1d reflection_pad2d replication_pad1d "
    "replication_pad2d replication_pad3d topk upsample_bicubic2d upsample_bilinear2d "
    "upsample_nearest2d upsample_nearest3d upsample_trilinear3d"
)
"""Operators, in any overload, without a gradient in Relay, composed of others that have one."""


class CoreOperators(tvm_frontend.PyTorchOpConverter):
    """Converters; see the module's text. A method that has an operator's name converts it."""

    def create_convert_map(self) -> None:
        super().create_convert_map()
        self.convert_map["aten::_convolution"] = self.convolution
        same = ("alias", "lift_fresh_copy", "positive")
        ours: dict[str, Callable[..., Any]] = dict.fromkeys(same, lambda inputs, _: inputs[0])
        ours |= {f"grid_sampler_{n}d": self.grid_sampler for n in (2, 3)}
        ours |= {"_softmax": self.softmax, "_log_softmax": self.log_softmax}
        ours |= {"_unsafe_view": self.convert_map["aten::view"]}
        ours |= {"convolution": self.convolution, "squeeze": self.squeeze}
        ours |= {"cumprod": lambda inputs, _: relay.cumprod(*inputs[:2])}
        self.convert_map.update({f"aten::{name}": convert for name, convert in ours.items()})

    def convolution(self, inputs: Any, input_types: Any) -> Any:
        """TVM's needs one number per axis."""
        rank = len(self.infer_shape(inputs[1])) - 2
        given = [list(v) * rank if len(v) == 1 else v for v in inputs[3:6]]
        rest = inputs[6:]
        if rank > 1 or not self.model.differentiable:
            return super().convolution([*inputs[:3], *given, *rest], input_types)
        # Relay has gradients of convolutions of images: make this one, with a single column.
        wide = [relay.expand_dims(v, 3) for v in inputs[:2]]
        given = [[*v, e] for v, e in zip(given, (1, 0, 1), strict=True)]
        rest = [rest[0], [*rest[1], 0], *rest[2:]]
        made = super().convolution([*wide, inputs[2], *given, *rest], input_types)
        return relay.squeeze(made, [3])

    def slice(self, inputs: Any, input_types: Any) -> Any:
        """TVM's makes a slice without an end dynamic."""
        begin = 0 if inputs[2] is None else inputs[2]
        end = sys.maxsize if inputs[3] is None else inputs[3]
        return super().slice([*inputs[:2], begin, end, *inputs[4:]], input_types)

    def scatter(self, inputs: Any, input_types: Any) -> Any:
        """TVM's takes no number as source."""
        data, axis, index, source, *how = inputs
        if isinstance(source, int | float):
            number = relay.const(source, self.infer_type(data).dtype)
            source = relay.broadcast_to(number, list(self.infer_shape(index)))
        return super().scatter([data, axis, index, source, *how], input_types)

    def squeeze(self, inputs: Any, input_types: Any) -> Any:
        """TVM's refuses an axis longer than 1, which PyTorch leaves unchanged."""
        data, size = inputs[0], self.infer_shape(inputs[0])
        axes = list(range(len(size)))
        if len(inputs) > 1:
            given = inputs[1] if isinstance(inputs[1], list) else [inputs[1]]
            axes = sorted({int(a) % max(len(size), 1) for a in given})
        single = [a for a in axes if len(size) and int(size[a]) == 1]
        return relay.squeeze(data, single) if single else data
