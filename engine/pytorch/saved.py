"""What PyTorch keeps from the forward for the backward of the same module: figures to compare with.

Bytes count storages, not tensors: a view and its base count once. Inputs, parameters and buffers
are free. The masks that dropout draws are left out, for a cut lists them apart as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from relascope.core.errors import lines_of
from relascope.engine.protocol.times import TorchSaved
from relascope.engine.pytorch.model import kept_buffers

_DRAWS = ("aten::bernoulli_", "aten::bernoulli", "aten::native_dropout", "aten::rand_like")
_UNSAFE_VIEWS = ("aten::_unsafe_view", "aten::_reshape_alias")


def torch_saved(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> TorchSaved:
    """Both figures of a module, which is left as it was, as is PyTorch's generator."""
    with torch.random.fork_rng(devices=[]), kept_buffers(module):
        return TorchSaved(eager_bytes(module, inputs), *_min_cut_or_why(module, inputs))


def _min_cut_or_why(
    module: torch.nn.Module, inputs: Sequence[torch.Tensor]
) -> tuple[int | None, str]:
    if isinstance(module, torch.jit.ScriptModule):
        return None, "PyTorch's partitioner takes a Python module; this is a TorchScript file."
    try:
        return min_cut_bytes(module, inputs), ""
    except Exception as error:  # what AOTAutograd cannot trace ends in errors of many kinds
        said = lines_of(error)[0].rstrip(".")
        return None, f"PyTorch's partitioner does not take this module: {said}."


def eager_bytes(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Bytes that autograd saves in one forward.

    Args:
        module: in train mode where dropout is to be on; its buffers are left changed by a forward
            in train mode, as by any.
        inputs: floating ones are taken to want a gradient.
    """
    given = _wanting(inputs)
    free = {_storage(t) for t in (*module.parameters(), *module.buffers(), *given)}
    masks = _Masks()
    kept: dict[int, torch.Tensor] = {}  # the tensors live on, so that no address comes twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(_storage(tensor), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), masks:
        module(*given)
    free.update(masks.drawn)
    own = [t for address, t in kept.items() if address not in free]
    return sum(t.untyped_storage().nbytes() for t in own)


def min_cut_bytes(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Bytes that AOTAutograd's min-cut partitioner saves, the compiler's own fusion left out.

    It is given the operators that torch.compile gives it, those of Inductor's decompositions.
    """
    from torch._functorch.aot_autograd import aot_module
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table  # slow to import

    found: list[int] = []

    def partition(joint: Any, arguments: Any, **options: Any) -> Any:
        forward, backward = min_cut_rematerialization_partition(joint, arguments, **options)
        results = next(n for n in forward.graph.nodes if n.op == "output").args[0]
        found.append(_saved_bytes(results[options["num_fwd_outputs"] :]))
        return forward, backward

    def keep(graph: torch.fx.GraphModule, arguments: Any) -> Any:
        return graph

    aot_module(
        module,
        fw_compiler=keep,
        bw_compiler=keep,
        partition_fn=partition,
        decompositions=select_decomp_table(),
    )(*_wanting(inputs))
    if len(found) != 1:
        raise RuntimeError(f"the module was partitioned {len(found)} times, not once")
    return found[0]


def _wanting(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class _Masks(TorchDispatchMode):
    """Remembers the storages of what is drawn at random."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator; keep what it drew."""
        result = func(*args, **(kwargs or {}))
        if func._schema.name in _DRAWS:
            mask = result[1] if isinstance(result, tuple) else result
            self.drawn[_storage(mask)] = mask
        return result


def _saved_bytes(saved: Sequence[Any]) -> int:
    """Bytes of the storages behind nodes of a forward, without inputs and masks."""
    bases = {_base(node) for node in saved if isinstance(node, torch.fx.Node)}
    total = 0
    for node in bases:
        value = node.meta.get("val")
        if node.op != "placeholder" and isinstance(value, torch.Tensor) and not _is_mask(node):
            total += value.untyped_storage().nbytes()
    return total


def _base(node: torch.fx.Node) -> torch.fx.Node:
    """The node that owns a node's storage."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], torch.fx.Node):
        # An item of a list of views is a view, one of results is a result.
        schemas = [getattr(n.target, "_schema", None) for n in (node, node.args[0])]
        schema = schemas[0] or schemas[1]
        if schema is None or not _is_view(schema):
            break
        node = node.args[0]
    return node


def _is_view(schema: Any) -> bool:
    alias = schema.arguments[0].alias_info if schema.arguments else None
    return schema.name in _UNSAFE_VIEWS or (alias is not None and not alias.is_write)


def _is_mask(node: torch.fx.Node) -> bool:
    """Whether a node is drawn: it is made of nothing that is given."""
    behind, seen = [node], {node}
    while behind:
        node = behind.pop()
        if node.op != "call_function":
            return False
        behind += [n for n in node.all_input_nodes if n not in seen]
        seen.update(behind)
    return True
