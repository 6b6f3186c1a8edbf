"""Checks every result of an operator against its type in PyTorch."""

import operator
from typing import Any, NoReturn

import torch
from torch.fx import Node
from tvm import relay, tir
from tvm.relay.frontend import pytorch as tvm_frontend
from tvm.topi.utils import get_const_tuple

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.pytorch.inputs.tensors import tensor_type
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.unlike import REWRITE, by_values

_BY_CONDITION = ("where",)  # a condition stays one
_OF_BOOLS = "add scatter_add scatter scatter_reduce index_put sort argsort sign max min amax amin"


class TypedConverter(tvm_frontend.PyTorchOpConverter):
    """TVM's converter, with operands and results of PyTorch's types. The operator of `node` is
    converted."""

    model: Model
    node: Node
    convert_map: dict[str, Any]

    def refuse(self, message: str, hint: str = "") -> NoReturn:
        source: Any = self.node.args[0] if self.node.target is operator.getitem else self.node
        raise EngineError("operator", message, source.meta["origin"].where, hint)

    def typed(self, convert: Any, inputs: Any, input_types: Any) -> Any:
        """An operator that casts its operands first where PyTorch does.

        Unlike TVM, PyTorch computes a floating result of integers in the result's dtype, and an
        integer result of bools likewise.
        """
        value: Any = self.node.meta["val"]
        first = value[0] if isinstance(value, list | tuple) else value
        name, wanted = _base(self.node), str(first.dtype).removeprefix("torch.")
        tensors = [i for i, v in enumerate(inputs) if isinstance(v, relay.Expr)]
        kinds = {i: getattr(self.infer_type(inputs[i]), "dtype", "") for i in tensors}
        dtype = self._operand_dtype(name, wanted, kinds)
        inputs, input_types = list(inputs), list(input_types)
        for i in tensors if dtype else ():
            if kinds[i] != dtype and (kinds[i] == "bool" or "float" in dtype):
                inputs[i], input_types[i] = relay.cast(inputs[i], dtype), dtype
        return convert(inputs, input_types)

    def _operand_dtype(self, name: str, wanted: str, kinds: dict[int, str]) -> str:
        """The dtype that operands of others are cast to; "" if they stay."""
        if not kinds or name in _BY_CONDITION:
            return ""
        if "float" in wanted and not any("float" in k for k in kinds.values()):
            return wanted
        if "int" in wanted and all(k == "bool" for k in kinds.values()):
            return wanted
        first = next(iter(kinds.values()))
        return "int32" if first == "bool" and name in _OF_BOOLS.split() else ""

    def checked(self, result: Any) -> Any:
        """A result in PyTorch's type: integers of another width are cast. Raises EngineError of
        kind "operator" for another shape or dtype, or a missing result."""
        value: Any = self.node.meta["val"]
        source: Any = self.node.args[0] if self.node.target is operator.getitem else self.node
        kind = source.meta["origin"].operator
        if result is None and self.node.users:
            message = f"Relay's PyTorch frontend leaves out a result of {kind}."
            self.refuse(message, REWRITE)
        typed = self.infer_type(result) if isinstance(result, relay.Expr) else None
        if not isinstance(typed, relay.TensorType) or not isinstance(value, torch.Tensor):
            return result
        if any(isinstance(d, tir.Any) for d in typed.shape):
            raise by_values(kind, source.meta["origin"], self.model)
        found = TensorType(tuple(get_const_tuple(typed.shape)), typed.dtype)
        wanted = tensor_type(value)
        if found.shape == wanted.shape and self._castable(found.dtype, wanted.dtype):
            return _cast(result, wanted.dtype)
        if found != wanted:
            message = f"{kind} gives {found} in Relay's PyTorch frontend, and {wanted} in PyTorch."
            self.refuse(message, REWRITE)
        return result

    def _castable(self, found: str, wanted: str) -> bool:
        if found == wanted:
            return False
        if "int" in found and "int" in wanted:
            return True
        return wanted == "bool" and found == "int32" and _base(self.node) in _OF_BOOLS.split()


def _cast(made: Any, dtype: str) -> Any:
    if isinstance(made, relay.Constant):
        return relay.const(made.data.numpy().astype(dtype), dtype)
    return relay.cast(made, dtype)


def _base(node: Node) -> str:
    """An operator's name, such as "add"."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name).removeprefix("aten::")
