"""TVM's converter of PyTorch operators, where it needed mending.

Each converter here takes over an operator that TVM's own turns, without a word, into something else
than what PyTorch computes (an ignored flag, a default that is not PyTorch's). It does it right, or
refuses and names the operator and its module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
import torch
import tvm
from tvm import relay
from tvm.relay.frontend import pytorch as tvm_frontend
from tvm.topi.utils import get_const_tuple

from relascope.core.errors import EngineError
from relascope.engine.pytorch import unlike
from relascope.engine.pytorch.flat_trace import Origin
from relascope.engine.pytorch.in_place import changed_buffers
from relascope.engine.pytorch.model import Model
from relascope.engine.relay.frontend.core_operators import (
    COMPOSED,
    COMPOSED_IN_TRAINING,
    CoreOperators,
)

Convert = Callable[..., Any]
"""From an operator's inputs and their types to what it becomes."""

_OTHER_DROPOUTS = ("alpha_dropout", "feature_alpha_dropout", "feature_dropout")


class Converter(CoreOperators):
    """See the module's text. TVM's frontend makes it, and gives all arguments but the first two.

    Args:
        model: what is converted.
        origins: where an operator comes from, by the source name that it bears in the frontend.

    Attributes:
        updates: the new value of each buffer that the model changes, by name. They are results of
            what is converted, after the model's own.
    """

    def __init__(self, model: Model, origins: dict[str, Origin], *args: Any, **kwargs: Any) -> None:
        self.model, self.origins = model, origins
        self.updates: dict[str, Any] = {}
        # TVM's frontend gives results other debug names, so operators are known by their origins.
        self._changed = {model.flat.origins[n]: b for n, b in changed_buffers(model).items()}
        self._depth = 0
        super().__init__(*args, **kwargs)

    def create_convert_map(self) -> None:
        """TVM's map, with ours instead of what needed mending; a method that has the name of one of
        TVM's stands in it already."""
        super().create_convert_map()
        theirs, ours = super(), {f"{n}_like": self.like(n) for n in ("full", "ones", "zeros")}
        ours |= {n: self.in_dtype(getattr(theirs, n)) for n in ("log_softmax", "softmax")}
        ours |= {n: self.recurrent(getattr(theirs, n)) for n in ("gru", "lstm")}
        ours |= {n: self.wrapped(getattr(theirs, n)) for n in ("index", "index_put")}
        ours |= {n: self.summed(n) for n in ("prod", "sum")}
        ours |= {"std": self.spread("std"), "var": self.spread("variance"), "div": self.divide}
        ours |= {n: self.other_dropout for n in _OTHER_DROPOUTS}
        self.convert_map.update({f"aten::{name}": convert for name, convert in ours.items()})
        self.convert_map.update({f"aten::{name}": self.random for name in unlike.RANDOM})

    def knows(self, name: str) -> bool:
        """Whether it converts an operator, such as "add.Tensor"; in place or not."""
        base = name.partition(".")[0]
        training = self.model.source.training
        if name in COMPOSED.split() or (training and base in COMPOSED_IN_TRAINING.split()):
            return False
        forms = (base, base if base.endswith("__") else base.removesuffix("_"))
        return "::" in base or any(f"aten::{f}" in self.convert_map for f in forms)

    # How TVM's frontend calls it.

    def report_missing_conversion(self, op_names: set[str]) -> None:
        for name in sorted(op_names):
            try:
                super().report_missing_conversion({name})
            except NotImplementedError as unknown:
                flat = self.model.flat
                node = next((n for n in flat.graph.nodes() if n.kind() == name), None)
                where = flat.origin(node).where if node is not None else name
                message, hint = unlike.unknown("Relay", name)
                raise EngineError("operator", message, where, hint) from unknown

    def convert_operators(self, operators: list[Any], outputs: Any, ret_names: Any) -> Any:
        self._depth += 1
        for name, node in operators:
            try:
                super().convert_operators([(name, node)], outputs, [])
                if (buffer := self._changed.get(self.origin_of(node))) is not None:
                    self.update(buffer, outputs[name])
            except EngineError:
                raise
            except Exception as wrong:
                raise unlike.unconverted(
                    "Relay", node.kind(), self.origin_of(node), wrong
                ) from wrong
        self._depth -= 1
        results = super().convert_operators([], outputs, ret_names)
        return results if self._depth else [*results, *self.updates.values()]

    def update(self, name: str, value: Any) -> None:
        """Keep the new value of a buffer."""
        if self._depth > 1:
            self.refuse("A buffer is changed inside a branch or loop.", "Change it outside.")
        dtype = str(self.model.buffers[name].dtype).removeprefix("torch.")
        same = self.infer_type(value).dtype == dtype
        self.updates[name] = value if same else relay.cast(value, dtype)

    def infer_type_with_prelude(self, val: Any) -> Any:
        """TVM's adds a whole library of list functions to each small module that it types."""
        try:
            return self.infer_type(val)
        except tvm.TVMError:
            return super().infer_type_with_prelude(val)

    def infer_shape_with_prelude(self, inputs: Any) -> Any:
        """As `infer_type_with_prelude`."""
        kind = self.infer_type_with_prelude(inputs)
        return get_const_tuple(kind.shape) if hasattr(kind, "shape") else kind

    def input_dtypes(self, node: Any, outputs: Any) -> list[str]:
        """Dtypes of a node's inputs as Relay infers them, for a loaded trace records none."""
        found = []
        for value in node.inputs():
            made = outputs[value.debugName()]
            if isinstance(made, relay.expr.ExprWithOp | relay.Var | relay.Constant):
                kind = self.infer_type(made)
                found.append(getattr(kind, "dtype", "UnsupportedType"))
            elif isinstance(made, bool | int | float) and value.type().kind() == "TensorType":
                scalar = "bool" if isinstance(made, bool) else None
                scalar = scalar or ("int64" if isinstance(made, int) else self.default_dtype)
                found.append(scalar)
            else:
                found.append(tvm_frontend._get_pytorch_value_type(value.type(), self.default_dtype))
        return found

    def origin_of(self, node: Any) -> Origin:
        return self.origins.get(self.source_map.get(node, ""), Origin("", node.kind(), -1))

    def refuse(self, message: str, hint: str = "") -> NoReturn:
        raise EngineError("operator", message, self.origin_of(self.current_op[-1]).where, hint)

    def number(self, value: float, like: Any) -> Any:
        """A constant of the dtype of another expression."""
        dtype = self.infer_type(like).dtype
        return relay.const(value, dtype)

    # Dropout and randomness.

    def dropout(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores the train flag that the trace records: off must mean rate 0."""
        data, rate, train = inputs
        return relay.op.nn.dropout(data, float(rate) if train else 0.0)

    def other_dropout(self, inputs: Any, input_types: Any) -> Any:
        """TVM's takes them for plain dropout, which draws and scales otherwise."""
        data, rate, train = inputs
        if train and rate:
            self.refuse(*unlike.OTHER_DROPOUT)
        return data

    def random(self, inputs: Any, input_types: Any) -> Any:
        """TVM's draws from its own generator, or not at all."""
        self.refuse(*unlike.DRAWS)

    def recurrent(self, theirs: Convert) -> Convert:
        """LSTM and GRU; TVM's applies the dropout between layers whether it is on or off."""

        def convert(inputs: Any, input_types: Any) -> Any:
            rate, train = inputs[-4], inputs[-3]
            if len(inputs) != 9:
                self.refuse("Packed sequences have no counterpart in Relay.", "Pad them instead.")
            if rate and train:
                self.refuse("Dropout between recurrent layers cannot be imported.", "Set it to 0.")
            return theirs([*inputs[:-4], 0.0, *inputs[-3:]], input_types)

        return convert

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
            self.refuse("Relay's layer norm takes one axis, the last.", "Flatten the others first.")
        size = int(shape[0])
        return self.norm(relay.op.nn.layer_norm, data, gamma, beta, size, epsilon, axis=-1)

    def group_norm(self, inputs: Any, input_types: Any) -> Any:
        """TVM's needs scale and shift."""
        data, groups, gamma, beta, epsilon = inputs[:5]
        size, options = int(self.infer_shape(data)[1]), {"num_groups": groups, "axis": 1}
        return self.norm(relay.op.nn.group_norm, data, gamma, beta, size, epsilon, **options)

    def batch_norm(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores the train flag and always normalises with the running statistics.

        In train mode the statistics are the batch's: its mean, and its mean squared distance to
        that. The running ones move towards them by the momentum, the variance towards the unbiased
        one.
        """
        if not inputs[5]:
            return super().batch_norm(inputs, input_types)
        data, gamma, beta, *running = inputs[:5]
        momentum, epsilon = float(inputs[6]), float(inputs[7])
        size = [int(d) for d in self.infer_shape(data)]
        axes = [i for i in range(len(size)) if i != 1]
        mean = _mean(data, axes)
        centred = data - mean
        variance = _mean(centred * centred, axes)
        result = centred / relay.sqrt(variance + self.number(epsilon, data))
        along = [size[1]] + [1] * (len(size) - 2)
        if gamma is not None:
            result = result * relay.reshape(gamma, along)
        if beta is not None:
            result = result + relay.reshape(beta, along)
        if running[0] is not None:
            count = math.prod(size[i] for i in axes)
            unbiased = variance * self.number(count / (count - 1), data)
            for position, new in ((3, mean), (4, unbiased)):
                self.move(inputs[position], position, relay.reshape(new, [size[1]]), momentum)
        return result

    def move(self, running: Any, position: int, new: Any, momentum: float) -> None:
        """Move a running statistic, an argument of the operator that is converted now."""
        node = self.current_op[-1]
        scope = self.origin_of(node).scope
        name = getattr(running, "name_hint", "")
        if name not in self.model.buffers or any(
            use.user.kind() != "aten::batch_norm" or not use.user.inputsAt(5).toIValue()
            for use in node.inputsAt(position).uses()
        ):
            self.refuse(*unlike.SHARED_STATISTICS)
        owner = self.model.module
        if not isinstance(owner, torch.jit.ScriptModule):  # a file does not tell
            with suppress(AttributeError):  # a functional call has no module
                owner = owner.get_submodule(scope)
            if getattr(owner, "momentum", momentum) is None:
                message = (
                    "This batch norm averages over all batches, so each run moves its statistics "
                    "by another amount."
                )
                self.refuse(message, "Give it a momentum.")
        old = self.updates.get(name, running)
        kept, moved = self.number(1 - momentum, running), self.number(momentum, running)
        self.update(name, old * kept + new * moved)

    def instance_norm(self, inputs: Any, input_types: Any) -> Any:
        """TVM's leaves out the update of the running statistics, where it keeps some."""
        if inputs[5] and inputs[3] is not None:
            message = (
                "Instance norm in train mode updates its running statistics, which Relay cannot."
            )
            self.refuse(message, "Put it in eval mode, or build it without running statistics.")
        return super().instance_norm(inputs, input_types)

    # Attention and embedding.

    def scaled_dot_product_attention(self, inputs: Any, input_types: Any) -> Any:
        """TVM's drops the scale where it finds the newer signature, with `enable_gqa`."""
        if inputs[4]:
            self.refuse(*unlike.MASK_OUT_OF_REACH)
        if len(inputs) > 7 and inputs[7]:
            self.refuse(*unlike.GROUPED)
        scale = inputs[6] if len(inputs) > 6 else None
        given = [*inputs[:6], scale]
        if given[3] is None:
            return super().scaled_dot_product_attention(given, input_types[:7])
        zero, lowest = (relay.const(v, input_types[0]) for v in (0.0, -math.inf))
        seen = mask = given[3]
        if input_types[3] == "bool":
            mask = relay.where(mask, zero, lowest)
        else:
            seen = relay.not_equal(mask, lowest)
        # A row that hides all keys is zero in PyTorch's result, where a softmax makes NaN.
        hidden = relay.equal(relay.max(relay.cast(seen, input_types[0]), -1, keepdims=True), zero)
        given[3] = relay.where(hidden, zero, mask)
        types = [*input_types[:3], input_types[0], *input_types[4:7]]
        return relay.where(hidden, zero, super().scaled_dot_product_attention(given, types))

    def embedding(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores `padding_idx`: that row gets no gradient in PyTorch."""
        _, indices, padding = (*inputs, -1)[:3]
        rows = super().embedding(inputs, input_types)
        if not self.model.source.training or padding < 0:
            return rows
        origin = self.origin_of(self.current_op[-1])
        name = f"{origin.scope}.weight" if origin.scope else "weight"
        tensor = self.model.parameters.get(name)
        if tensor is None:
            self.refuse(*unlike.NO_PADDING_ROW)
        unlike.note_padding(self.model, padding, name)
        # Without a dtype, TVM takes float64 for float32.
        row = relay.const(tensor[padding].detach().numpy(), self.infer_type(rows).dtype)
        is_padding = relay.equal(indices, self.number(padding, indices))
        return relay.where(relay.expand_dims(is_padding, -1), row, rows)

    # Arithmetic.

    def add(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores alpha."""
        return super().add(*self.scaled(inputs, input_types))

    def sub(self, inputs: Any, input_types: Any) -> Any:
        """TVM's multiplies with an alpha of 1."""
        return super().sub(*self.scaled(inputs, input_types))

    def scaled(self, inputs: Any, input_types: Any) -> tuple[Any, Any]:
        if len(inputs) < 3 or inputs[2] == 1:
            return inputs[:2], input_types[:2]
        other, alpha = inputs[1:3]
        if isinstance(other, bool | int | float):
            return [inputs[0], other * alpha], input_types[:2]
        product = self.make_elemwise("multiply")([other, alpha], input_types[1:3])
        return [inputs[0], product], input_types[:2]

    def divide(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores `rounding_mode`."""
        mode = inputs[2] if len(inputs) > 2 else None
        if mode == "floor":
            return self.make_elemwise("floor_divide")(inputs[:2], input_types[:2])
        quotient = self.make_elemwise("divide")(inputs[:2], input_types[:2])
        if mode is None:
            return quotient
        kind = self.infer_type(inputs[0]).dtype
        return relay.cast(relay.trunc(quotient), kind) if "int" in kind else relay.trunc(quotient)

    def gelu(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores `approximate`."""
        data, approximate = (*inputs, "none")[:2]
        if approximate == "none":
            return super().gelu(inputs, input_types)
        cube = self.number(0.044715, data) * data * data * data
        inner = self.number(math.sqrt(2 / math.pi), data) * (data + cube)
        return self.number(0.5, data) * data * (self.number(1.0, data) + relay.tanh(inner))

    def elu(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores `scale` and `input_scale`."""
        if any(s != 1 for s in inputs[2:4]):
            self.refuse("A scaled elu cannot be imported.", "Multiply outside of it.")
        return super().elu(inputs, input_types)

    def hard_sigmoid(self, inputs: Any, input_types: Any) -> Any:
        """TVM's has float32 constants whatever the input is."""
        data = inputs[0]
        return relay.clip(data + self.number(3, data), 0.0, 6.0) / self.number(6, data)

    def baddbmm(self, inputs: Any, _: Any) -> Any:
        """TVM's has float32 constants whatever the input is."""
        data, left, right, beta, alpha = inputs
        product = relay.op.nn.batch_matmul(left, right, transpose_b=False)
        product = product if alpha == 1 else self.number(alpha, left) * product
        return product + (data if beta == 1 else self.number(beta, left) * data)

    # Reductions.

    def in_dtype(self, theirs: Convert) -> Convert:
        """Operators that cast their input first where a dtype is given; TVM's ignore it."""

        def convert(inputs: Any, input_types: Any) -> Any:
            return theirs([self.cast(inputs[0], inputs, 2), *inputs[1:]], input_types)

        return convert

    def cast(self, data: Any, inputs: Any, position: int) -> Any:
        code = inputs[position] if len(inputs) > position else None
        if code is None:
            return data
        dtype = tvm_frontend._convert_dtype_value(code)
        return data if self.infer_type(data).dtype == dtype else relay.cast(data, dtype)

    def mean(self, inputs: Any, input_types: Any) -> Any:
        """TVM's takes a dtype for its own flag `exclude`."""
        whole = len(inputs) == 2
        data = self.cast(inputs[0], inputs, 1 if whole else 3)
        axes = None if whole else inputs[1] or None
        return relay.mean(data, axes, False if whole else bool(inputs[2]))

    def summed(self, name: str) -> Convert:
        """Sums and products; TVM's ignore the dtype, and that integers become int64."""

        def convert(inputs: Any, input_types: Any) -> Any:
            whole = len(inputs) == 2
            position = 1 if whole else 3
            data = self.cast(inputs[0], inputs, position)
            if len(inputs) <= position or inputs[position] is None:
                kind = self.infer_type(data).dtype
                if kind != "int64" and ("int" in kind or kind == "bool"):
                    data = relay.cast(data, "int64")
            axes = None if whole or inputs[1] == [] else inputs[1]
            return getattr(relay, name)(data, axes, False if whole else bool(inputs[2]))

        return convert

    def spread(self, name: str) -> Convert:
        """Standard deviation and variance; TVM's takes every correction for 0 or 1."""

        def convert(inputs: Any, input_types: Any) -> Any:
            data = inputs[0]
            if len(inputs) == 2:
                axes, correction, keep = None, inputs[1], False
            else:
                axes, correction, keep = inputs[1] or None, inputs[2], bool(inputs[3])
            correction = 1 if correction is None else int(correction)
            if correction not in (0, 1):
                self.refuse(f"A correction of {correction} cannot be imported.", "Use 0 or 1.")
            return getattr(relay, name)(data, axes, keep, False, unbiased=bool(correction))

        return convert

    # Shapes and dtypes.

    def to(self, inputs: Any, input_types: Any) -> Any:
        """TVM's leaves out casts to bool and to small integers."""
        data = inputs[0]
        code = next((i for i in inputs[1:3] if isinstance(i, int) and not isinstance(i, bool)), 6)
        dtype = tvm_frontend._convert_dtype_value(code)
        if not isinstance(data, relay.Expr):
            return super().to(inputs, input_types)
        if len(inputs) > 1 and all(not isinstance(i, int) for i in inputs[1:3]):
            return data  # to another device only
        return data if self.infer_type(data).dtype == dtype else relay.cast(data, dtype)

    def like(self, name: str) -> Convert:
        """zeros_like and its kin; TVM's take float32 where no dtype is given, not the input's."""

        def convert(inputs: Any, input_types: Any) -> Any:
            data, own = inputs[0], self.infer_type(inputs[0]).dtype
            value, code = inputs[1:3] if name == "full" else (int(name == "ones"), inputs[1])
            dtype = own if code is None else tvm_frontend._convert_dtype_value(code)
            return relay.full(relay.const(value, dtype), list(self.infer_shape(data)), dtype)

        return convert

    def wrapped(self, theirs: Convert) -> Convert:
        """Negative indices count from the end; TVM's reads and writes outside the data there."""

        def convert(inputs: Any, input_types: Any) -> Any:
            lengths = [int(d) for d in self.infer_shape(inputs[0])]
            indices = [
                v if v is None else self._wrapped(v, lengths[i]) for i, v in enumerate(inputs[1])
            ]
            return theirs([inputs[0], indices, *inputs[2:]], input_types)

        return convert

    def _wrapped(self, index: Any, length: int) -> Any:
        dtype = self.infer_type(index).dtype
        if dtype == "bool":
            return index
        if isinstance(index, relay.Constant):
            values = index.data.numpy()
            return relay.const(np.where(values < 0, values + length, values), dtype)
        zero, end = relay.const(0, dtype), relay.const(length, dtype)
        return relay.where(relay.less(index, zero), relay.add(index, end), index)

    def chunk(self, inputs: Any, input_types: Any) -> Any:
        """TVM's splits otherwise where the axis does not divide evenly."""
        data, chunks, axis = inputs[0], int(inputs[1]), int(inputs[2])
        length = int(self.infer_shape(data)[axis])
        return relay.split(data, list(range(0, length, math.ceil(length / chunks)))[1:], axis)

    def tensor_split(self, inputs: Any, input_types: Any) -> Any:
        """TVM's splits otherwise where the axis does not divide evenly."""
        data, sections, axis = inputs[0], inputs[1], int(inputs[2])
        if isinstance(sections, int):
            size, rest = divmod(int(self.infer_shape(data)[axis]), sections)
            sections = [i * size + min(i, rest) for i in range(1, sections)]
        return relay.split(data, [int(s) for s in sections], axis)

    def make_avg_pool(self, dimensions: int) -> Convert:
        """TVM's ignores `divisor_override`."""
        theirs = super().make_avg_pool(dimensions)

        def convert(inputs: Any, input_types: Any) -> Any:
            if len(inputs) > 6 and inputs[6] is not None:
                self.refuse("divisor_override cannot be imported.", "Multiply after the pooling.")
            return theirs(inputs, input_types)

        return convert

    def pad_common(self, mode: Any, pad_value: Any, inputs: Any, input_types: Any) -> Any:
        """TVM's leaves out what is padded beyond three axes."""
        widths = inputs[1]
        if isinstance(widths, list) and any(widths[6:]):
            self.refuse("Padding more than three axes cannot be imported.", "Pad in two steps.")
        return super().pad_common(mode, pad_value, inputs, input_types)


def _mean(data: Any, axes: list[int]) -> Any:
    """The mean over some axes, which are kept, one axis at a time.

    TVM adds up thousands of numbers one after the other; in shorter sums, less is rounded away.
    PyTorch adds them up in float64, and 50 layers of batch norm magnify the difference.
    """
    for axis in reversed(axes):
        data = relay.mean(data, [axis], keepdims=True)
    return data
