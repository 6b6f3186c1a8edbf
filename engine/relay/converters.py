"""TVM's converter of PyTorch operators, where it needed mending.

Each converter here takes over one operator that TVM's own converts without a word into something
else than PyTorch computes: it does it right, or refuses and names the operator and its module.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.frontend import pytorch as tvm_frontend

from engine.model import Model
from engine.session import EngineError


class Converter(tvm_frontend.PyTorchOpConverter):
    """See the module's text. Made by TVM's frontend, which gives all arguments but the first."""

    def __init__(self, model: Model, *args: Any, **kwargs: Any) -> None:
        self.model = model
        super().__init__(*args, **kwargs)

    def create_convert_map(self) -> None:
        super().create_convert_map()
        self.convert_map["aten::dropout"] = self.dropout
        self.convert_map["aten::gelu"] = self.gelu

    def report_missing_conversion(self, op_names: set[str]) -> None:
        for name in sorted(op_names):
            try:
                super().report_missing_conversion({name})
            except NotImplementedError as unknown:
                place = next(
                    (o.where for o in self.model.flat.origins.values() if o.operator == name), name
                )
                raise EngineError(
                    "operator", f"Relay's PyTorch frontend does not know the operator {name}.",
                    place, "Write this part of the model with other operators.",
                ) from unknown  # fmt: skip

    def convert_operators(self, operators: list[Any], outputs: Any, ret_names: Any) -> Any:
        for name, node in operators:
            try:
                super().convert_operators([(name, node)], outputs, [])
            except EngineError:
                raise
            except Exception as wrong:
                lines = [t.strip() for t in str(wrong).splitlines() if t.strip()]
                raise EngineError(
                    "operator",
                    f"Relay's PyTorch frontend cannot convert {node.kind()} as it is used here: "
                    f"{lines[-1] if lines else type(wrong).__name__}",
                    self.place_of(node),
                ) from wrong
        return super().convert_operators([], outputs, ret_names)

    def place_of(self, node: Any) -> str:
        """For an error: the operator and its module."""
        scope, operator, _ = (*self.source_map[node].split("|"), "", "")[:3]
        return f"{operator} in {scope}" if scope else f"{operator} at the top"

    def dropout(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores the train flag that the trace records: off must mean rate 0."""
        data, rate, train = inputs
        return relay.op.nn.dropout(data, float(rate) if train else 0.0)

    def gelu(self, inputs: Any, input_types: Any) -> Any:
        """TVM's ignores `approximate`."""
        data, approximate = (*inputs, "none")[:2]
        if approximate == "none":
            return super().gelu(inputs, input_types)
        dtype = self.infer_type(data).dtype

        def number(value: float) -> Any:
            return relay.const(np.asarray(value, dtype), dtype)

        inner = number((2 / np.pi) ** 0.5) * (data + number(0.044715) * data * data * data)
        return number(0.5) * data * (number(1.0) + relay.tanh(inner))
