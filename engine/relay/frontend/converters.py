"""TVM's converter of PyTorch operators, mended.

Converters here replace those of TVM's that silently compute something other than PyTorch (an
ignored flag, another default): they are right, or refuse and name the operator and its module.
"""

import math
import operator
import sys
from collections.abc import Callable, Mapping
from functools import partial, reduce
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import torch
from torch.fx import Node
from tvm import relay, tir
from tvm.relay.frontend import pytorch as tvm_frontend
from tvm.relay.frontend.common import set_span
from tvm.topi.utils import get_const_tuple

from relascope.core.errors import EngineError, reporting
from relascope.core.graph import TensorType
from relascope.engine.pytorch import unlike
from relascope.engine.pytorch.flat_trace import TraceOrigin
from relascope.engine.pytorch.inputs.tensors import tensor_type
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.operators.forms import given_to
from relascope.engine.pytorch.operators.number_formats import in_common
from relascope.engine.pytorch.trace_to_fx import FxTrace, dtype_number
from relascope.passes.relay.ir.stop_gradient import stop_gradient

Convert = Callable[..., Any]
"""From an operator's inputs and their types to its result in Relay."""

_PLACES = ("device", "layout", "memory_format", "pin_memory")  # programs choose these


_COMPOSED = (
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
"""Operators that PyTorch composes of others that are right, or have a gradient, where TVM's
converters are wrong or have none."""

_COMPOSED_IN_TRAINING = (
    "adaptive_avg_pool1d avg_pool1d avg_pool3d einsum grid_sampler grid_sampler_2d "
    "grid_sampler_3d group_norm linalg_vector_norm max_pool1d max_pool3d meshgrid nll_loss "
    "nll_loss_nd nll_loss2d pad prelu reflection_pad1d reflection_pad2d replication_pad1d "
    "replication_pad2d replication_pad3d topk upsample_bicubic2d upsample_bilinear2d "
    "upsample_nearest2d upsample_nearest3d upsample_trilinear3d"
)
"""Operators, in any overload, without a gradient in Relay, composed of others that have one."""


class Converter(tvm_frontend.PyTorchOpConverter):
    """See the module's text."""

    def __init__(self, model: Model) -> None:
        self.model = model
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        super().__init__(SimpleNamespace(mod=None), dtype)  # no trace has TVM's lists

    def create_convert_map(self) -> None:
        """TVM's map with ours; methods here that are named like TVM's override them already."""
        super().create_convert_map()
        theirs = super()
        ours: dict[str, Convert] = {"div": self.divide, "round": self.round, "pow": self.power}
        ours |= {f"{n}_like": partial(self.like, n) for n in ("full", "ones", "zeros")}
        ours |= {f"avg_pool{n}d": partial(self.avg_pool, n) for n in (1, 2, 3)}
        ours |= {n: partial(self.wrapped, getattr(theirs, n)) for n in ("index", "index_put")}
        ours |= {"empty": self.convert_map["aten::zeros"]}  # TVM's takes integers by default
        ours |= dict.fromkeys(("to", "_to_copy", "type_as"), self.to)
        for n in ("and", "or", "xor"):
            convert = partial(self.of_bits, n)
            ours |= dict.fromkeys((f"bitwise_{n}", f"__{n}__", f"__i{n}__"), convert)
        for n in ("left", "right"):
            convert = partial(self.shift, n)
            ours |= dict.fromkeys((f"bitwise_{n}_shift", f"__{n[0]}shift__"), convert)
        ours |= {"detach": self.detached, "squeeze": self.squeeze}
        ours |= {"_softmax": self.softmax, "_log_softmax": self.log_softmax}
        ours |= dict.fromkeys(("alias", "lift_fresh_copy", "positive"), lambda inputs, _: inputs[0])
        ours |= {f"grid_sampler_{n}d": self.grid_sampler for n in (2, 3)}
        ours |= {"_unsafe_view": self.convert_map["aten::view"]}
        ours |= dict.fromkeys(("convolution", "_convolution"), self.convolution)
        ours |= {"cumprod": lambda inputs, _: relay.cumprod(*inputs[:2])}
        self.convert_map.update({f"aten::{name}": convert for name, convert in ours.items()})
        self.convert_map.update({f"aten::am{n}": partial(self.extreme, n) for n in ("ax", "in")})

    def knows(self, name: str) -> bool:
        """Whether it converts an operator, such as "add.Tensor"."""
        base = name.partition(".")[0]
        if name in _COMPOSED.split():
            return False
        if self.model.differentiable and base in _COMPOSED_IN_TRAINING.split():
            return False
        return f"aten::{base}" in self.convert_map

    def convert(self, trace: FxTrace, variables: Mapping[str, Any]) -> list[Any]:
        """The outputs of a trace, then the new values of buffers. `variables` stand for the trace's
        arguments and masks, by name. Raises EngineError of kind "operator", which names the
        operator and its module."""
        env: dict[Node, Any] = {}
        arguments = iter((*trace.arguments, *(m.name for m in trace.masks)))
        for node in trace.graph.nodes:
            if node.op == "placeholder":
                env[node] = variables[next(arguments)]
            elif node.op == "get_attr":
                env[node] = _constant(trace.constants[str(node.target)])
            elif node.op == "call_function":
                self.node = node
                self.current_op, self.source_map = [node], {node: span_key(node.meta["origin"])}
                origin = node.meta["origin"]
                with reporting(partial(unlike.unconverted, "Relay", origin.operator, origin)):
                    made = self.checked(self.called(env))
                env[node] = set_span(made, self.source_map[node])
        outputs: Any = trace.graph.output_node().args[0]
        results = (*outputs, *trace.updates.values())
        return [tvm_frontend._wrap_const(env[n]) for n in results]

    def called(self, env: Mapping[Node, Any]) -> Any:
        """The result of an operator's call, or one item of several results."""
        node: Any = self.node
        if node.target is operator.getitem:
            several, index = env[node.args[0]], node.args[1]
            is_tuple = isinstance(several, relay.Expr)
            return relay.TupleGetItem(several, index) if is_tuple else several[index]
        schema: Any = node.target._schema
        given = given_to(schema, node.args, node.kwargs)
        result = node.meta["val"]
        if not node.all_input_nodes and isinstance(result, torch.Tensor):
            given["dtype"] = result.dtype  # TVM's default dtypes differ
        inputs, types, common = [], [], in_common(node)
        for argument in schema.arguments:
            value = None if argument.name in _PLACES else given[argument.name]
            made, kind = _replaced(value, env), _type(value)
            if isinstance(value, Node) and value in common and isinstance(made, relay.Expr):
                kind = str(common[value]).removeprefix("torch.")
                made = relay.cast(made, kind)
            types.append(kind)
            inputs.append(made)
        return self.convert_map[str(schema.name)](inputs, types)

    def refuse(self, message: str, hint: str = "") -> NoReturn:
        raise EngineError("operator", message, self.source.where, hint)

    @property
    def source(self) -> TraceOrigin:
        """The origin of the operator of `node`, or of which that is an item."""
        node: Any = self.node.args[0] if self.node.target is operator.getitem else self.node
        origin: TraceOrigin = node.meta["origin"]
        return origin

    def checked(self, result: Any) -> Any:
        """A result in PyTorch's type: integers of another width are cast. Raises EngineError of
        kind "operator" for another shape or dtype, or a missing result."""
        value, kind = self.node.meta["val"], self.source.operator
        if result is None and self.node.users:
            message = f"Relay's PyTorch frontend leaves out a result of {kind}."
            self.refuse(message, unlike.REWRITE)
        typed = self.infer_type(result) if isinstance(result, relay.Expr) else None
        if not isinstance(typed, relay.TensorType) or not isinstance(value, torch.Tensor):
            return result
        if any(isinstance(d, tir.Any) for d in typed.shape):
            raise unlike.by_values(kind, self.source, self.model)
        found = TensorType(tuple(get_const_tuple(typed.shape)), typed.dtype)
        wanted = tensor_type(value)
        if found == wanted:
            return result
        whole = "int" in found.dtype and ("int" in wanted.dtype or wanted.dtype == "bool")
        if found.shape != wanted.shape or not whole:
            message = f"{kind} gives {found} in Relay's PyTorch frontend, and {wanted} in PyTorch."
            self.refuse(message, unlike.REWRITE)
        if isinstance(result, relay.Constant):
            return relay.const(result.data.numpy().astype(wanted.dtype), wanted.dtype)
        return relay.cast(result, wanted.dtype)

    def number(self, value: float, like: Any) -> Any:
        return relay.const(value, self.infer_type(like).dtype)

    # Dropout.

    def dropout(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores the train flag that the trace records: off must mean rate 0."""
        data, rate, train = inputs
        return relay.op.nn.dropout(data, float(rate) if train else 0.0)

    def detached(self, inputs: Any, input_types: Any) -> Any:
        """TVM's lets the gradient pass."""
        is_float = isinstance(inputs[0], relay.Expr) and "float" in self.infer_type(inputs[0]).dtype
        return stop_gradient(inputs[0]) if is_float and self.model.differentiable else inputs[0]

    # Normalisations.

    def norm(
        self, op: Any, data: Any, gamma: Any, beta: Any, size: int, epsilon: Any, **options: Any
    ) -> Any:
        """Relay's norm, which needs scale and shift."""
        dtype = self.infer_type(data).dtype
        options |= {"center": beta is not None, "scale": gamma is not None}
        gamma = relay.const(np.ones(size), dtype) if gamma is None else gamma
        beta = relay.const(np.zeros(size), dtype) if beta is None else beta
        return op(data, gamma, beta, epsilon=float(epsilon), **options)

    def layer_norm(self, inputs: Any, input_types: Any) -> Any:
        """TVM's needs scale and shift."""
        data, shape, gamma, beta, epsilon = inputs[:5]
        if len(shape) != 1:
            message = "Relay's layer norm normalises only the last axis."
            self.refuse(message, "Flatten the axes to normalise into one.")
        return self.norm(relay.op.nn.layer_norm, data, gamma, beta, int(shape[0]), epsilon, axis=-1)

    def group_norm(self, inputs: Any, input_types: Any) -> Any:
        """TVM's needs scale and shift."""
        data, groups, gamma, beta, epsilon = inputs[:5]
        size, options = int(self.infer_shape(data)[1]), {"num_groups": groups, "axis": 1}
        return self.norm(relay.op.nn.group_norm, data, gamma, beta, size, epsilon, **options)

    def instance_norm(self, inputs: Any, input_types: Any) -> Any:
        """TVM's leaves out the update of the running statistics, where it keeps some."""
        if inputs[5] and inputs[3] is not None:
            message = "Instance norm in train mode updates its running statistics; Relay cannot do "
            hint = "Put it in eval mode, or build it without running statistics."
            self.refuse(f"{message}that.", hint)
        return super().instance_norm(inputs, input_types)

    # Arithmetic.

    def sub(self, inputs: Any, input_types: Any) -> Any:
        """TVM's multiplies with an alpha of 1."""
        return super().sub(inputs[:2], input_types[:2])

    def divide(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores `rounding_mode`, which only integers have here."""
        mode = inputs[2] if len(inputs) > 2 else None
        if mode == "trunc":
            return relay.divide(*self.promoted(inputs))
        name = "floor_divide" if mode else "divide"
        return self.make_elemwise(name)(inputs[:2], input_types[:2])

    def gelu(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores `approximate`."""
        data, approximate = (*inputs, "none")[:2]
        if approximate == "none":
            return super().gelu(inputs, input_types)
        cube = self.number(0.044715, data) * data * data * data
        inner = self.number(math.sqrt(2 / math.pi), data) * (data + cube)
        return self.number(0.5, data) * data * (self.number(1.0, data) + relay.tanh(inner))

    def clamp_common(self, data: Any, min: Any = None, max: Any = None) -> Any:
        """TVM's takes the limits of integers through floats, which do not hold them."""
        if "float" in self.infer_type(data).dtype:
            low, high = (-math.inf if min is None else min), (math.inf if max is None else max)
            if low > high:  # PyTorch then returns the upper limit everywhere, without a gradient
                data, low = stop_gradient(data), high
            return relay.clip(data, float(low), float(high))
        for limited, bound in ((relay.maximum, min), (relay.minimum, max)):
            data = data if bound is None else limited(data, self.number(bound, data))
        return data

    def power(self, inputs: Any, input_types: Any) -> Any:
        """TVM's has no powers of integers."""
        base, exponent = inputs[:2]
        kinds = [self.infer_type(i).dtype for i in inputs[:2] if isinstance(i, relay.Expr)]
        whole = not any("float" in k for k in kinds) and not isinstance(exponent, float)
        if not whole or isinstance(base, float):
            return self.make_elemwise("power")(inputs, input_types)
        if not isinstance(exponent, int) or not 0 < exponent <= 64:
            message = "Powers of integers need a constant exponent from 1 to 64."
            self.refuse(message, "Convert the base to float.")
        return reduce(relay.multiply, [base] * exponent)

    def of_bits(self, name: str, inputs: Any, input_types: Any) -> Any:
        """TVM's takes operands of one dtype only, and treats `&` as logical."""
        operands = self.promoted(inputs)
        kind = "logical" if self.infer_type(operands[0]).dtype == "bool" else "bitwise"
        return getattr(relay, f"{kind}_{name}")(*operands)

    def bitwise_not(self, inputs: Any, input_types: Any) -> Any:
        """TVM's leaves 32 bits."""
        is_bool = self.infer_type(inputs[0]).dtype == "bool"
        return (relay.logical_not if is_bool else relay.bitwise_not)(inputs[0])

    def shift(self, name: str, inputs: Any, input_types: Any) -> Any:
        """TVM's is undefined for negative shifts, and for shifts by all bits or more."""
        op = getattr(relay, f"{name}_shift")
        data, by = self.promoted(inputs)
        dtype = self.infer_type(data).dtype
        last = np.iinfo(dtype).bits - 1
        if isinstance(inputs[1], int) and 0 <= inputs[1] <= last:
            return op(data, by)
        zero, most = self.number(0, data), self.number(last, data)
        within = relay.logical_and(by >= zero, by <= most)
        made = op(data, relay.where(within, by, most))
        signs = name == "right" and not dtype.startswith("u")
        return made if signs else relay.where(within, made, zero)

    def promoted(self, inputs: Any) -> list[Any]:
        """Two operands, each in the dtype of the result."""
        dtype = str(self.node.meta["val"].dtype).removeprefix("torch.")
        return [
            relay.cast(v, dtype)
            if isinstance(v, relay.Expr)
            else relay.const(np.array(v).astype(dtype), dtype)
            for v in inputs[:2]
        ]

    def round(self, inputs: Any, input_types: Any) -> Any:
        """TVM's rounds halves away from zero, PyTorch to even."""
        data = inputs[0]
        if "float" not in self.infer_type(data).dtype:
            return data
        half, floor = self.number(0.5, data), relay.floor(data)
        rest = data - floor
        even = self.number(2, data) * relay.floor(floor * half + half)
        near = relay.where(rest > half, floor + self.number(1, data), even)
        return relay.where(rest < half, floor, near)

    # Reductions.

    def extreme(self, name: str, inputs: Any, input_types: Any) -> Any:
        """amax and amin; TVM's take an empty list of axes for none."""
        data, axes, keep = (*inputs, [], False)[:3]
        return getattr(relay, f"m{name}")(data, axes or None, keep)

    def sort(self, inputs: Any, input_types: Any) -> Any:
        """TVM's takes the flag `stable`, which comes before the axis, for the axis."""
        order = self.argsort(inputs, input_types)
        return relay.gather(inputs[0], int(inputs[-2]), order), order

    def argsort(self, inputs: Any, input_types: Any) -> Any:
        """As `sort`. NaN is the largest, which TVM's comparison does not know: a first sort moves
        it to that end."""
        data, (axis, down) = inputs[0], inputs[-2:]
        options = {"axis": int(axis), "is_ascend": not down, "dtype": "int64"}
        if "float" not in self.infer_type(data).dtype:
            return relay.argsort(data, **options)
        first = relay.argsort(relay.cast(relay.isnan(data), "int32"), **options)
        moved = relay.gather(data, int(axis), first)
        moved = relay.where(relay.isnan(moved), self.number(math.inf, data), moved)
        return relay.gather(first, int(axis), relay.argsort(moved, **options))

    # Shapes and dtypes.

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

    def to(self, inputs: Any, input_types: Any) -> Any:
        """TVM's leaves out casts to bool and to small integers."""
        value: Any = self.node.meta["val"]
        data, dtype = inputs[0], str(value.dtype).removeprefix("torch.")
        if not isinstance(data, relay.Expr):
            return np.dtype(dtype).type(data).item()
        return data if self.infer_type(data).dtype == dtype else relay.cast(data, dtype)

    def like(self, name: str, inputs: Any, input_types: Any) -> Any:
        """zeros_like and its kin; without a dtype, TVM's take float32, not the input's."""
        data, own = inputs[0], self.infer_type(inputs[0]).dtype
        value, code = inputs[1:3] if name == "full" else (int(name == "ones"), inputs[1])
        dtype = own if code is None else tvm_frontend._convert_dtype_value(code)
        return relay.full(relay.const(value, dtype), list(self.infer_shape(data)), dtype)

    def wrapped(self, theirs: Convert, inputs: Any, input_types: Any) -> Any:
        """Negative indices count from the end; TVM's reads and writes outside the data there."""
        along = zip(inputs[1], map(int, self.infer_shape(inputs[0])), strict=False)
        indices = [v if v is None else self._wrapped(v, length) for v, length in along]
        return theirs([inputs[0], indices, *inputs[2:]], input_types)

    def _wrapped(self, index: Any, length: int) -> Any:
        dtype = self.infer_type(index).dtype
        if isinstance(index, relay.Constant):
            values = index.data.numpy()
            return relay.const(np.where(values < 0, values + length, values), dtype)
        zero, end = relay.const(0, dtype), relay.const(length, dtype)
        return relay.where(relay.less(index, zero), relay.add(index, end), index)

    # Convolving, pooling and resizing.

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

    def windows(self, inputs: Any, dilation: Any, ceil: bool) -> tuple[Any, Any, list[int], bool]:
        """Sizes, strides and padding (all begins, then all ends) of pooling windows; whether ends
        reach beyond the padding.

        With sizes rounded up, ends reach to the last window; unlike TVM, PyTorch leaves out one
        that begins in the padding.
        """
        data, *options = (self.convert_const_list(i) for i in inputs[:4])
        kernel, strides, padding = options
        rank = len(kernel)
        strides = strides or kernel
        padding = [*padding] * (rank if len(padding) == 1 else 1)  # one number for all axes
        ends = []
        lengths = [int(d) for d in self.infer_shape(data)[-rank:]]
        sizes = zip(lengths, kernel, strides, padding, dilation, strict=True)
        for size, k, step, pad, apart in sizes:
            reach = apart * (k - 1) + 1
            more = -(-(size + 2 * pad - reach) // step) if ceil else 0
            more -= more * step >= size + pad
            ends.append(max(pad, more * step + reach - size - pad))
        return kernel, strides, [*padding, *ends], ends != padding

    def max_pool(self, inputs: Any, input_types: Any) -> Any:
        """TVM's counts one window too many where sizes are rounded up."""
        data, dilation, ceil = inputs[0], inputs[4], bool(inputs[5])
        kernel, strides, padding, _ = self.windows(inputs, dilation, ceil)
        rank = len(kernel)
        single = len(self.infer_shape(data)) == rank + 1
        data = relay.expand_dims(data, 0) if single else data
        op = getattr(relay.nn, f"max_pool{rank}d")
        made = op(data, kernel, strides, dilation, padding)
        return relay.squeeze(made, [0]) if single else made

    maxpool_1d = maxpool_2d = maxpool_3d = max_pool

    def avg_pool(self, dimensions: int, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores `divisor_override`, and counts otherwise where sizes are rounded up."""
        op = getattr(relay.nn, f"avg_pool{dimensions}d")
        data, ceil, count = inputs[0], bool(inputs[4]), bool(inputs[5])
        divisor = inputs[6] if len(inputs) > 6 else None
        kernel, strides, padding, beyond = self.windows(inputs, [1] * dimensions, ceil)
        single = len(self.infer_shape(data)) == dimensions + 1
        data = relay.expand_dims(data, 0) if single else data
        if beyond and count and divisor is None:
            before = padding[:dimensions]
            around = [(p, p) for p in before]
            data = relay.nn.pad(data, [(0, 0), (0, 0), *around]) if any(before) else data
            rest = zip(padding[dimensions:], before, strict=True)
            padding, count = [0] * dimensions + [end - p for end, p in rest], False
        if divisor is not None and "float" not in self.infer_type(data).dtype:
            message = "Average pooling of integers takes no divisor_override."
            self.refuse(message, "Convert the input to float.")
        options = {"count_include_pad": count or divisor is not None}
        made = op(data, kernel, strides, [1] * dimensions, padding, **options)
        if divisor is not None:
            made = made * self.number(math.prod(kernel) / divisor, made)
        return relay.squeeze(made, [0]) if single else made

    def grid_sampler(self, inputs: Any, input_types: Any) -> Any:
        """With some padding modes, TVM's reads another element where a coordinate is NaN."""
        flat = len(self.infer_shape(inputs[0])) == 4
        if inputs[3] and not (flat and (inputs[2], inputs[3]) != (1, 2)):
            message = "grid_sample with this padding_mode cannot be imported."
            self.refuse(message, 'Use padding_mode="zeros".')
        return super().grid_sampler(inputs, input_types)

    def pad_common(self, mode: Any, pad_value: Any, inputs: Any, input_types: Any) -> Any:
        """TVM's leaves out padding of more than three axes."""
        widths = inputs[1]
        if isinstance(widths, list) and any(widths[6:]):
            self.refuse("Padding more than three axes cannot be imported.", "Pad in two steps.")
        return super().pad_common(mode, pad_value, inputs, input_types)


def span_key(origin: TraceOrigin) -> str:
    """The source name in the spans of an operator's expressions."""
    return f"{origin.scope}|{origin.operator}|{origin.ordinal}"


def _constant(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach().cpu()
    if not tensor.dim():
        return tensor.item()
    half = tensor.dtype == torch.bfloat16
    dtype = str(tensor.dtype).removeprefix("torch.")
    return relay.const((tensor.float() if half else tensor).numpy(), dtype)


def _replaced(value: Any, env: Mapping[Node, Any]) -> Any:
    if isinstance(value, list | tuple):
        return [_replaced(v, env) for v in value]
    if isinstance(value, torch.dtype):
        return dtype_number(value)
    return env[value] if isinstance(value, Node) else value


_KINDS = {bool: "bool", int: "int32", float: "float32", list: "ListType", tuple: "ListType"}


def _type(value: Any) -> str:
    """The type of an argument, as TVM's frontend calls it."""
    if isinstance(value, Node):
        return str(value.meta["val"].dtype).removeprefix("torch.")
    return _KINDS.get(type(value), "UnsupportedType")
