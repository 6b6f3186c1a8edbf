"""TVM's importer of ATen operators, mended.

Converters here replace TVM's where those silently differ from PyTorch. Options that no converter
reads, and results with another shape or dtype than PyTorch's, are refused by name."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
import tvm
from torch.fx import Node
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from relascope.core.errors import EngineError, reporting
from relascope.core.graph import GRADIENT_OF, TensorType
from relascope.engine.pytorch import unlike
from relascope.engine.pytorch.flat_trace import TraceOrigin
from relascope.engine.pytorch.inputs.tensors import tensor_type
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.operators.number_formats import in_common
from relascope.engine.relax.draw.to_graph import tensor_types
from relascope.engine.relax.frontend.arguments import Reading
from relascope.passes.relax.ir.rewrite import shape, with_args

_BY_NAME = "addmm batch_norm convolution layer_norm linear"
"""Operators with a converter of the same name."""

_FILLED: dict[str, int | float] = {
    "full full_like": 1,
    "new_full": 2,
    "new_ones ones ones_like": 1.0,
    "new_zeros zeros zeros_like": 0.0,
}
"""Operators that fill a tensor, and the argument of `Converter.filled`."""

_LEFT_OUT = (
    "_native_batch_norm_legit_functional.default _native_batch_norm_legit_no_training.default "
    "_native_batch_norm_legit.no_stats native_group_norm.default std.correction _softmax.default "
    "conv1d.default conv2d.default conv3d.default conv_transpose1d.default conv_transpose2d.input "
    "copy_.default copy.default native_layer_norm.default celu.default elu.default rsub.Scalar "
    "rsub.Tensor lstm.input gru.input selu.default _upsample_bilinear2d_aa.vec "
    "_upsample_bilinear2d_aa.default masked_fill.Scalar clamp.Tensor clamp_max.Tensor "
    "clamp_min.Tensor max_pool2d_with_indices.default max_pool3d_with_indices.default "
    "dropout.default"
)
"""Decomposed by PyTorch, because TVM's converters differ from it or ignore options."""

_WRITTEN_OUT = (
    "affine_grid_generator.default any.dim any.dims as_strided.default atanh.default "
    "bucketize.Tensor cross_entropy_loss.default "
    "cumprod.default diagonal.default div.Scalar_mode div.Tensor_mode expm1.default eye.default "
    "eye.m "
    "floor_divide.default grid_sampler_2d.default instance_norm.default linspace.default "
    "logaddexp.default max.dim "
    "median.default median.dim meshgrid.default meshgrid.indexing narrow.default outer.default "
    "pixel_shuffle.default prelu.default "
    "remainder.Scalar remainder.Tensor rnn_relu.input rnn_tanh.input round.decimals "
    "softshrink.default take.default"
)
"""Operators of which TVM has some forms only, or no gradient: a trace has others in their place."""

_WRITTEN_OUT_IN_TRAINING = (
    "linalg_vector_norm.default topk.default max_pool1d.default max_pool3d.default "
    "upsample_bilinear2d.vec upsample_bicubic2d.vec"
)
"""Operators for which TVM has no gradient, or a different one."""

Convert = Callable[[Node], Any]
"""From a node of the FX graph to its Relax expression."""


def variable(name: str, shape: Sequence[int], dtype: str) -> Any:
    return relax.Var(name, relax.TensorType(list(shape), dtype))


def dtype_name(dtype: torch.dtype) -> str:
    """As TVM writes it: "float32"."""
    return str(dtype).removeprefix("torch.")


class NamedBuilder(relax.BlockBuilder):
    """A block builder that names each variable after its operator, because passes keep names.
    `origins` has each variable's origin, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.origin = TraceOrigin("", "", -1)
        self.origins: dict[str, TraceOrigin] = {}
        self.copies: dict[TraceOrigin, int] = {}

    def emit(self, expr: Any, name_hint: str = "") -> Any:
        variable = super().emit(self.flat(expr), name_hint or self.hint())
        self.origins[str(variable.name)] = self.origin
        return variable

    def flat(self, expr: Any) -> Any:
        """A call whose nested calls are bound, so that they get our names, too."""
        if not isinstance(expr, tvm.ir.Call):
            return expr
        inner = [self.emit(a) if isinstance(a, tvm.ir.Call) else a for a in expr.args]
        return with_args(expr, inner)

    def hint(self) -> str:
        """The name for an operator's result, unlike those that passes invent."""
        origin = self.origin
        copy = self.copies[origin] = self.copies.get(origin, -1) + 1
        operator = origin.operator.rpartition("::")[2].strip("_")
        ending = "_grad" if origin.operator.startswith(GRADIENT_OF) else ""
        name = f"{operator}_{origin.ordinal}{ending}"
        return f"{name}_{copy}" if copy else name


class Bound:
    """Relax's operators; each call is bound to a variable at once."""

    def __init__(self, ops: Any, builder: NamedBuilder) -> None:
        self._ops, self._builder = ops, builder

    def __getattr__(self, name: str) -> Any:
        op = getattr(self._ops, name)
        if not callable(op):
            return Bound(op, self._builder)
        return lambda *args, **options: self._builder.emit(op(*args, **options))


class Converter(ExportedProgramImporter):
    """See the module's docstring. `constants` are the graph's tensors."""

    def __init__(self, model: Model, constants: Mapping[str, torch.Tensor]) -> None:
        builder = NamedBuilder()
        self.op = Bound(relax.op, builder)
        super().__init__()
        self.model, self.constants, self.block_builder = model, constants, builder

    def create_convert_map(self) -> dict[str, Convert]:
        """TVM's map, with our converters in place of wrong ones."""
        theirs = super().create_convert_map()
        ours: dict[str, Convert] = {f"{n}.default": getattr(self, n) for n in _BY_NAME.split()}
        matmul = self._binary_op(relax.op.matmul, operator.matmul)
        instead: dict[Convert, str] = {
            self.divide: "div.Tensor_mode",
            partial(self.extreme, self.op.max): "amax.default",
            partial(self.extreme, self.op.min): "amin.default",
            self.clamp: "clamp.default clamp_min.default clamp_max.default",
            self.nearest: "upsample_nearest2d.vec",
            self.power: "pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor",
            self.detached: "detach.default",
            partial(self.filled, 1): "fill.Scalar",
            self.same: "clone.default contiguous.default",
            self.scattered: "scatter_add.default scatter_reduce.two",
            self.sort: "sort.default",
            self.select: "select.int",
            partial(self.softmax, self.op.nn.log_softmax): "_log_softmax.default",
            self.to: "to.device to.dtype to.dtype_layout to.other to.prim_Device _to_copy.default",
            matmul: "bmm.default matmul.default mm.default",
        }
        ours |= {name: convert for convert, names in instead.items() for name in names.split()}
        mended: dict[Callable[[Convert, Node], Any], str] = {
            self.counted: "index.Tensor index_put.default",
            self.expanded: "expand.default",
            self.wide_index: "gather.default index_select.default scatter.src scatter.value",
        }
        for mend, names in mended.items():
            ours |= {n: partial(mend, theirs[n]) for n in names.split()}
        for names, value in _FILLED.items():
            ours |= {f"{n}.default": partial(self.filled, value) for n in names.split()}
        return {k: v for k, v in {**theirs, **ours}.items() if k not in _LEFT_OUT.split()}

    def knows(self, name: str) -> bool:
        """Whether an operator of a trace stays as it is."""
        if name == "group_norm.default" and torch.float64 in {t.dtype for t in self.model.inputs}:
            return False  # TVM's kernel has no float64
        training = _WRITTEN_OUT_IN_TRAINING if self.model.differentiable else ""
        return name in self.convert_map and name not in f"{_WRITTEN_OUT} {training}".split()

    def convert(self, node: Node) -> Any:
        """Convert one node of the FX graph, and check its type against PyTorch's. Raises
        EngineError of kind "operator" that names the operator and its module."""
        self.block_builder.origin = node.meta["origin"]
        if node.op == "get_attr":
            return self._convert_torch_tensor_to_relax(self.constants[str(node.target)])
        name = node.target.__name__  # type: ignore[union-attr]
        if name not in self.convert_map:
            self.refuse(node, *unlike.unknown("Relax", name))
        reading = Reading(node)
        meta = node.meta
        with reporting(lambda e: unlike.unconverted("Relax", name, meta["origin"], e)):
            cast = {n: self.cast(self.env[n], d) for n, d in in_common(node).items()}
            made = self.with_others(self.convert_map[name], cast, reading)
            made = self.as_pytorch(node, made)
        if left_out := reading.left_out():
            self.refuse(node, f"The option {left_out[0]} of {name} cannot be imported.")
        self.check(node, made)
        return made

    @staticmethod
    def _convert_torch_tensor_to_relax(tensor: torch.Tensor) -> Any:
        """Like TVM's, but with bfloat16."""
        values = tensor.detach().cpu()
        half = values.dtype == torch.bfloat16
        return relax.const((values.float() if half else values).numpy(), dtype_name(tensor.dtype))

    def retrieve_args(self, node: Any) -> Any:
        """The arguments; each counts as read once it is used."""
        return node.noted([self._retrieve_args(v) for v in node.node.args])

    def every(self, node: Node) -> list[Any]:
        positional = [a for a in node.target._schema.arguments if not a.kwarg_only]  # type: ignore[union-attr]
        values = list(self.retrieve_args(node))
        return values + [a.default_value for a in positional[len(values) :]]

    def as_pytorch(self, node: Node, results: Any) -> Any:
        """A result, cast to PyTorch's dtype if that is bool or another integer."""
        kinds = node.meta["val"]
        several = isinstance(kinds, list | tuple)
        if results is None or (isinstance(results, list | tuple) and None in results):
            return results
        found = _made_types(results)
        wanted = [v.dtype for v in (kinds if several else [kinds])]
        if len(found) != len(wanted) or not any(map(_casts, found, wanted)):
            return results
        parts = [results]
        if several and not isinstance(results, list | tuple):
            items = [relax.TupleGetItem(results, i) for i in range(len(wanted))]
            parts = [self.block_builder.emit(i) for i in items]
        elif several:
            parts = list(results)
        cast = zip(parts, found, wanted, strict=True)
        parts = [self.cast(p, d) if _casts(f, d) else p for p, f, d in cast]
        return parts if several else parts[0]

    def check(self, node: Node, results: Any) -> None:
        value = node.meta["val"]
        wanted = [tensor_type(v) for v in (value if isinstance(value, list | tuple) else [value])]
        if wanted != (found := _made_types(results)):
            theirs, ours = (", ".join(map(str, kinds)) for kinds in (wanted, found))
            message = f"{node.target} gives {ours} in Relax's PyTorch frontend"
            self.refuse(node, f"{message}, and {theirs} in PyTorch.")

    def refuse(self, node: Node, message: str, hint: str = "") -> NoReturn:
        raise EngineError("operator", message, node.meta["origin"].where, hint)

    def number(self, value: float, like: Any) -> Any:
        return relax.const(value, str(like.ty.dtype))

    # Products: TVM's write float32 into the program whatever the operands' dtype.

    def linear(self, node: Node) -> Any:
        data, weight, bias = (*self.retrieve_args(node), None)[:3]
        product = self.op.matmul(data, self.op.permute_dims(weight))
        return product if bias is None else self.op.add(product, bias)

    def addmm(self, node: Node) -> Any:
        added, left, right = self.retrieve_args(node)
        product = self.op.matmul(left, right)
        alpha, beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
        return self.op.add(self.times(product, alpha), self.times(added, beta))

    def convolution(self, node: Node) -> Any:
        data, weight, bias, *options = self.retrieve_args(node)
        made = convolved(self.op, data, weight, *options)
        if bias is None:
            return made
        along = [1, shape(bias)[0], *[1] * (len(shape(data)) - 2)]
        return self.op.add(made, self.op.reshape(bias, along))

    def times(self, value: Any, factor: Any) -> Any:
        return value if factor == 1 else self.op.multiply(value, self.number(factor, value))

    def divide(self, node: Node) -> Any:
        """A division of integers, which TVM's divide truncates; its importer would use float32."""
        left, right = self.retrieve_args(node)
        if not isinstance(right, relax.Expr):
            right = self.number(right, left)
        mode = node.kwargs["rounding_mode"]
        return (self.op.floor_divide if mode == "floor" else self.op.divide)(left, right)

    # Normalisations.

    def layer_norm(self, node: Node) -> Any:
        """TVM's has no scale without a shift."""
        data, over, gamma, beta, epsilon, _ = self.every(node)
        return self._layer_norm_impl(data, gamma, beta, epsilon, tuple(over))

    def batch_norm(self, node: Node) -> Any:
        """TVM's drops the mode, which is that for inference here."""
        data, gamma, beta, mean, variance, _, _, epsilon, _ = self.retrieve_args(node)
        return self.by_statistics(data, gamma, beta, mean, variance, epsilon)

    def by_statistics(
        self, data: Any, gamma: Any, beta: Any, mean: Any, variance: Any, epsilon: float
    ) -> Any:
        """Batch norm in eval mode."""
        channels, dtype = shape(data)[1], str(data.ty.dtype)
        options = {"scale": gamma is not None, "center": beta is not None, "training": False}
        gamma = relax.const(np.ones(channels), dtype) if gamma is None else gamma
        beta = relax.const(np.zeros(channels), dtype) if beta is None else beta
        given = data, gamma, beta, mean, variance
        made = self.op.nn.batch_norm(*given, axis=1, epsilon=epsilon, **options)
        return self.block_builder.emit(relax.TupleGetItem(made, 0))

    # Parts of tensors.

    def select(self, node: Node) -> Any:
        """TVM's reads before the tensor if the index counts from the end."""
        data, axis, index = self.retrieve_args(node)
        return self.op.take(data, relax.const(index % shape(data)[axis], "int64"), axis)

    def wide_index(self, theirs: Convert, node: Node) -> Any:
        """Indices along an axis, of any integer dtype; TVM's must be int64."""
        index: Any = node.args[2]
        size = shape(self.env[node.args[0]])[node.args[1]]  # type: ignore[index]
        wide = self.from_front(self.cast(self.env[index], torch.int64), size)
        return self.with_others(theirs, {index: wide}, node)

    def scattered(self, node: Node) -> Any:
        """Elements combined at places along an axis."""
        data, axis, index, source, *how = self.retrieve_args(node)
        by = {"prod": "mul", "amax": "max", "amin": "min"}.get((*how, "sum")[0], "add")
        index, size = self.cast(index, torch.int64), list(shape(index))
        if list(shape(source)) != size:
            source = self.op.strided_slice(source, list(range(len(size))), [0] * len(size), size)
        return self.op.scatter_elements(data, index, source, axis, by)

    def sort(self, node: Node) -> Any:
        """NaN sorts above all, which TVM's comparison cannot do: it moves to the end first."""
        given = list(self.retrieve_args(node))
        data, axis, down = given + [-1, False][len(given) - 1 :]
        op = self.op
        if "float" not in str(data.ty.dtype):
            order = op.argsort(data, axis, down, dtype="int64")
            return [op.gather_elements(data, order, axis), order]
        first = op.argsort(op.astype(op.isnan(data), "int32"), axis, down, dtype="int64")
        moved = op.gather_elements(data, first, axis)
        moved = op.where(op.isnan(moved), self.number(math.inf, data), moved)
        order = op.gather_elements(first, op.argsort(moved, axis, down, dtype="int64"), axis)
        return [op.gather_elements(data, order, axis), order]

    def counted(self, theirs: Convert, node: Node) -> Any:
        """TVM's converter, given indices that count from the front."""
        source, indices = node.args[:2]
        places = zip(shape(self.env[source]), indices, strict=False)  # type: ignore[arg-type]
        given = {n: self.from_front(self.env[n], size) for size, n in places if n is not None}
        return self.with_others(theirs, given, node)

    def from_front(self, index: Any, size: int) -> Any:
        """Indices along an axis; those that count from its end then count from its front."""
        if isinstance(index, tvm.ir.expr.GenericConst):
            places = index.value.numpy()
            return relax.const(np.where(places < 0, places + size, places), str(index.ty.dtype))
        below = self.op.less(index, self.number(0, index))
        return self.op.where(below, self.op.add(index, self.number(size, index)), index)

    def softmax(self, op: Callable[..., Any], node: Node) -> Any:
        """Softmaxes as autograd records them, which may also cast their input first."""
        data, axis, _ = self.retrieve_args(node)
        return op(self.cast(data, node.meta["val"].dtype), axis)

    def nearest(self, node: Node) -> Any:
        """Copies of whole pixels, exact in every dtype; TVM rounds places differently."""
        data, _, factors = self.every(node)
        sizes = zip(shape(data)[2:], node.meta["val"].shape[2:], factors or (0, 0), strict=True)
        for axis, (size, wanted, factor) in enumerate(sizes, 2):
            step = np.float32(1 / factor if factor and wanted != 2 * size else size / wanted)
            places = np.arange(wanted, dtype="float32") * (1 if size == wanted else step)
            places = np.minimum(places.astype("int64"), size - 1)
            if wanted % size == 0 and (places == np.arange(wanted) // (wanted // size)).all():
                data = self.op.repeat(data, wanted // size, axis)
            else:
                data = self.op.take(data, relax.const(places), axis)
        return data

    def power(self, node: Node) -> Any:
        """TVM has no kernel for a power of integers by a tensor."""
        by_tensor = "Tensor_Scalar" not in str(node.target)
        if by_tensor and "int" in dtype_name(node.meta["val"].dtype):
            self.refuse(node, "A power of integers by a tensor cannot be imported.")
        return self._pow(node)

    def extreme(self, op: Callable[..., Any], node: Node) -> Any:
        """The largest or smallest along axes, or along all if none is named; TVM's has neither."""
        data, axes, keep = (*self.retrieve_args(node), [], False)[:3]
        return op(data, list(axes) or None, keepdims=bool(keep))

    def clamp(self, node: Node) -> Any:
        """TVM's ignores the bound of `clamp_max`, and bounds integers by infinity."""
        x, *bounds = self.every(node)
        if len(bounds) == 1:
            bounds = [None, *bounds] if "max" in str(node.target) else [*bounds, None]
        low, high = bounds
        if "float" in str(x.ty.dtype):
            low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
            if low > high:  # then PyTorch's is the upper one, without a gradient
                x, low = self.op.clip(x, low, math.inf), -math.inf
            return self.op.clip(x, low, high)
        for limited, bound in ((self.op.maximum, low), (self.op.minimum, high)):
            x = x if bound is None else limited(x, self.number(bound, x))
        return x

    # Dtypes.

    def filled(self, value: int | float, node: Node) -> Any:
        """Tensors filled with one number; TVM's have other dtypes than PyTorch's. `value` is the
        number, or as an int, the place of the argument that has it."""
        kind = node.meta["val"]
        number: Any = node.args[value] if isinstance(value, int) else value
        dtype = self._convert_data_type(kind.dtype)
        filling = relax.const(number, dtype)
        if not kind.shape:
            return filling
        if not math.isfinite(number):  # TVM has no kernel that fills with infinity
            return self.op.broadcast_to(filling, list(kind.shape))
        return self.op.full(list(kind.shape), filling, dtype)

    def to(self, node: Node) -> Any:
        """TVM's omits some casts, and adds others that change nothing."""
        data, *_ = self.retrieve_args(node)
        return self.cast(data, node.meta["val"].dtype)

    def expanded(self, theirs: Convert, node: Node) -> Any:
        """TVM's, which copies what has the shape already."""
        data, *_ = node.args
        assert isinstance(data, Node)
        same = data.meta["val"].shape == node.meta["val"].shape
        return self.env[data] if same else theirs(node)

    def cast(self, data: Any, dtype: torch.dtype) -> Any:
        wanted = self._convert_data_type(dtype)
        if str(data.ty.dtype) == wanted:
            return data
        if isinstance(data, tvm.ir.expr.GenericConst) and not shape(data):
            return relax.const(data.value.numpy().item(), wanted)
        return self.op.astype(data, wanted)

    def with_others(self, convert: Convert, instead: dict[Node, Any], node: Any) -> Any:
        """What a converter returns with other values for some nodes."""
        before = {n: self.env[n] for n in instead}
        self.env.update(instead)
        try:
            return convert(node)
        finally:
            self.env.update(before)

    def detached(self, node: Node) -> Any:
        """TVM's lets the gradient pass."""
        data = self.env[node.args[0]]
        is_stop = self.model.differentiable and "float" in str(data.ty.dtype)
        return self.op.grad.no_grad(data) if is_stop else data

    def same(self, node: Node) -> Any:
        return self.env[node.args[0]]


def convolved(op: Any, data: Any, weight: Any, *options: Any) -> Any:
    """A convolution by the operators `op`, with PyTorch's options from the stride on, of which a
    single number counts for all axes."""
    *sizes, turned, more, groups = options
    spatial = len(shape(data)) - 2
    each = [list(v) * (spatial if len(v) == 1 else 1) for v in (*sizes, more)]
    how = {"strides": each[0], "padding": each[1] * 2, "dilation": each[2], "groups": groups}
    how |= {"output_padding": each[3]} if turned else {}
    return getattr(op.nn, f"conv{spatial}d{'_transpose' * turned}")(data, weight, **how)


def _made_types(made: Any) -> list[TensorType]:
    parts = made if isinstance(made, list | tuple) else [made]
    return [kind for part in parts for kind in tensor_types(part.ty)]


def _casts(found: TensorType, wanted: torch.dtype) -> bool:
    """Whether to cast a result to PyTorch's dtype: between integers, and to bool."""
    exact = not wanted.is_floating_point and not wanted.is_complex
    other = found.dtype != dtype_name(wanted)
    return other and exact and (wanted == torch.bool or "int" in found.dtype)
