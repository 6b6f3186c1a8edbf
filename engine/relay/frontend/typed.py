"""Checks every result of an operator against its type in PyTorch."""

from typing import Any, NoReturn

from tvm import relay, tir
from tvm.relay.frontend import pytorch as tvm_frontend
from tvm.relay.frontend.common import set_span
from tvm.topi.utils import get_const_tuple

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.pytorch.flat_trace import TraceOrigin
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.unlike import REWRITE, by_values

_BY_CONDITION = ("where",)  # a condition stays one
_OF_BOOLS = "add scatter_add scatter scatter_reduce index_put sort argsort sign max min amax amin"


class TypedConverter(tvm_frontend.PyTorchOpConverter):
    """TVM's converter, with operands and results of PyTorch's types.

    Attributes:
        origins: where an operator comes from, by its source name in the frontend.
    """

    model: Model
    origins: dict[str, TraceOrigin]
    convert_map: dict[str, Any]

    def origin_of(self, node: Any) -> TraceOrigin:
        return self.origins.get(self.source_map.get(node, ""), TraceOrigin("", node.kind(), -1))

    def refuse(self, message: str, hint: str = "") -> NoReturn:
        raise EngineError("operator", message, self.origin_of(self.current_op[-1]).where, hint)

    def typed(self, convert: Any) -> Any:
        """An operator that casts its operands first where PyTorch does.

        Unlike in TVM, a floating result of other operands is computed in its dtype, and integers of
        bools likewise.
        """

        def converted(inputs: Any, input_types: Any) -> Any:
            node = self.current_op[-1]
            name = _base(node.kind())
            wanted = _type_of(next(node.outputs()))
            tensors = [i for i, v in enumerate(inputs) if isinstance(v, relay.Expr)]
            kinds = {i: getattr(self.infer_type(inputs[i]), "dtype", "") for i in tensors}
            dtype = self._operand_dtype(name, wanted.dtype if wanted else "", kinds)
            inputs, input_types = list(inputs), list(input_types)
            for i in tensors if dtype else ():
                if kinds[i] != dtype and (kinds[i] == "bool" or "float" in dtype):
                    inputs[i], input_types[i] = relay.cast(inputs[i], dtype), dtype
            return convert(inputs, input_types)

        return converted

    def _operand_dtype(self, name: str, wanted: str, kinds: dict[int, str]) -> str:
        """What operands that are of no such dtype are cast to; "" where they stay."""
        if not kinds or name in _BY_CONDITION:
            return ""
        if "float" in wanted and not any("float" in k for k in kinds.values()):
            return wanted
        if "int" in wanted and all(k == "bool" for k in kinds.values()):
            return wanted
        first = next(iter(kinds.values()))
        return "int32" if first == "bool" and name in _OF_BOOLS.split() else ""

    def check(self, node: Any, outputs: dict[str, Any]) -> None:
        """Check a node's results against PyTorch's types; cast integers of another width, and what
        a change in place makes to the changed tensor's dtype.

        Raises:
            EngineError: kind "operator"; another shape or dtype, or a result that is left out.
        """
        source = node.input().node() if node.kind() == "prim::ListUnpack" else node
        kind, where = source.kind(), self.origin_of(source).where
        for value in node.outputs():
            name, wanted = value.debugName(), _type_of(value)
            made = outputs.get(name)
            if made is None and wanted and value.uses():
                message = f"Relay's PyTorch frontend leaves out one of the results of {kind}."
                raise EngineError("operator", message, where, REWRITE)
            typed = self.infer_type(made) if isinstance(made, relay.Expr) else None
            if not isinstance(typed, relay.TensorType):
                continue
            if any(isinstance(d, tir.Any) for d in typed.shape):
                raise by_values(kind, self.origin_of(source), self.model)
            if wanted is None:
                continue
            found = TensorType(tuple(get_const_tuple(typed.shape)), typed.dtype)
            if found.shape == wanted.shape and self._castable(kind, found.dtype, wanted.dtype):
                outputs[name] = set_span(_cast(made, wanted.dtype), self.source_map[node])
            elif found != wanted:
                message = f"Relay's PyTorch frontend makes {found} of {kind}, and PyTorch {wanted}."
                raise EngineError("operator", message, where, REWRITE)

    def _castable(self, kind: str, found: str, wanted: str) -> bool:
        if found == wanted:
            return False
        if "int" in found and "int" in wanted:
            return True
        if wanted == "bool" and found == "int32":
            return _base(kind) in _OF_BOOLS.split()
        return _base(kind) != kind.removeprefix("aten::")


def _cast(made: Any, dtype: str) -> Any:
    if isinstance(made, relay.Constant):
        return relay.const(made.data.numpy().astype(dtype), dtype)
    return relay.cast(made, dtype)


def _base(kind: str) -> str:
    """An operator's name without "aten::", and without the mark of a change in place."""
    name = kind.removeprefix("aten::")
    return name if name.endswith("__") else name.removesuffix("_")


def _type_of(value: Any) -> TensorType | None:
    """The type that a trace records of a value: that of a tensor, if whole."""
    kind = value.type()
    if kind.kind() != "TensorType" or kind.sizes() is None or kind.dtype() is None:
        return None
    return TensorType(tuple(kind.sizes()), str(kind.dtype()).removeprefix("torch."))
