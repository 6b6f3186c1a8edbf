"""How much PyTorch saves in a module's forward for its backward, as figures to compare with.

Bytes count storages, not tensors: a view and its base count once. Inputs, parameters and buffers
are free; the masks that dropout draws are not.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch

from relascope.core.errors import lines_of
from relascope.engine.protocol.times import BEST_BUDGET, TorchSaved
from relascope.engine.pytorch.model import kept_buffers
from relascope.engine.pytorch.nested import flat_tensors

_UNSAFE_VIEWS = ("aten::_unsafe_view", "aten::_reshape_alias")


def torch_saved(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> TorchSaved:
    """Both figures of a module. The module and PyTorch's generator are left as they were."""
    with torch.random.fork_rng(devices=[]), kept_buffers(module):
        return TorchSaved(eager_bytes(module, inputs), *_min_cut_or_why(module, inputs))


def _min_cut_or_why(
    module: torch.nn.Module, inputs: Sequence[torch.Tensor]
) -> tuple[int | None, int | None, str]:
    if isinstance(module, torch.jit.ScriptModule):
        why = "PyTorch's partitioner takes only Python modules; this is a TorchScript file."
        return None, None, why
    try:
        default, best = map(sum, min_cut_storages(module, inputs, (1.0, BEST_BUDGET)))
    except Exception as error:  # AOTAutograd raises errors of many kinds
        said = lines_of(error)[0].rstrip(".")
        return None, None, f"PyTorch's partitioner cannot handle this module: {said}."
    return default, best, ""


def eager_bytes(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Bytes that autograd saves in one forward, in which floating-point inputs require gradients.
    Dropout counts if the module is in train mode; its buffers change as in any forward."""
    given = _wanting(inputs)
    free = {_storage(t) for t in (*module.parameters(), *module.buffers(), *given)}
    kept: dict[int, torch.Tensor] = {}  # the tensors stay alive, so that no address is reused

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(_storage(tensor), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        module(*given)
    own = [t for address, t in kept.items() if address not in free]
    return sum(t.untyped_storage().nbytes() for t in own)


Partition = tuple[Any, int, list[Any]]
"""A joint FX graph, the number of results of the forward, and what it saves besides them."""


def min_cut_storages(
    module: torch.nn.Module, inputs: Sequence[torch.Tensor], budgets: Sequence[float] = (1.0,)
) -> list[list[int]]:
    """Bytes of each storage that `partitions` saves, within each of some budgets."""
    return [_saved_storages(saved) for *_, saved in partitions(module, inputs, budgets)]


def partitions(
    module: torch.nn.Module, inputs: Sequence[torch.Tensor], budgets: Sequence[float]
) -> list[Partition]:
    """How AOTAutograd's min-cut partitioner cuts a module within each `activation_memory_budget`:
    after Inductor's decompositions and its passes over the joint graph, but without its fusion.
    Raises RuntimeError unless the module is one graph."""
    from torch._functorch import config
    from torch._functorch.aot_autograd import aot_module
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._guards import detect_fake_mode
    from torch._inductor.decomposition import select_decomp_table  # slow to import
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.virtualized import V

    found: list[Partition] = []

    def partition(joint: Any, arguments: Any, **options: Any) -> Any:
        values = [n.meta.get("val") for n in joint.graph.nodes]
        with V.set_fake_mode(detect_fake_mode(values)):
            joint = joint_graph_passes(joint)
        options["compiler"] = "inductor"
        for budget in budgets:
            with config.patch(activation_memory_budget=budget):
                given = deepcopy(joint) if len(budgets) > 1 else joint
                forward, backward = min_cut_rematerialization_partition(given, arguments, **options)
            results, own = forward.graph.output_node().args[0], options["num_fwd_outputs"]
            found.append((joint, own, list(results[own:])))
        return forward, backward

    def keep(graph: torch.fx.GraphModule, arguments: Any) -> Any:
        return graph

    # An exported program returns one tensor as a tuple, and else as it is while it is traced.
    flat = module.register_forward_hook(lambda module, args, output: flat_tensors(output))
    how: dict[str, Any] = {"partition_fn": partition, "decompositions": select_decomp_table()}
    with flat:
        aot_module(module, fw_compiler=keep, bw_compiler=keep, **how)(*_wanting(inputs))
    if len(found) != len(budgets):
        times = len(found) // len(budgets)
        raise RuntimeError(f"the module was partitioned {times} times, not once")
    return found


def _wanting(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [
        t.detach().clone().requires_grad_(t.is_floating_point() or t.is_complex()) for t in inputs
    ]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _saved_storages(saved: Sequence[Any]) -> list[int]:
    """Bytes of each storage behind the nodes that a forward saves, without inputs."""
    bases = {_base(node) for node in saved if isinstance(node, torch.fx.Node)}
    values = [node.meta.get("val") for node in bases if node.op != "placeholder"]
    return [v.untyped_storage().nbytes() for v in values if isinstance(v, torch.Tensor)]


def _base(node: torch.fx.Node) -> torch.fx.Node:
    while node.op == "call_function" and node.args and isinstance(node.args[0], torch.fx.Node):
        # An item of a list of views is a view, one of results is a result.
        schemas = [getattr(n.target, "_schema", None) for n in (node, node.args[0])]
        schema = schemas[0] or schemas[1]
        if schema is None or not is_view(schema):
            break
        node = node.args[0]
    return node


def is_view(schema: Any) -> bool:
    alias = schema.arguments[0].alias_info if schema.arguments else None
    return schema.name in _UNSAFE_VIEWS or (alias is not None and not alias.is_write)
