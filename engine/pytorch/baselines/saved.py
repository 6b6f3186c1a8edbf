"""How much PyTorch saves in a module's forward for its backward, as figures to compare with.

Bytes count storages, not tensors: a view and its base count once. Inputs, parameters and buffers
are free; the masks that dropout draws are not.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from relascope.core.errors import lines_of
from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.engine.protocol.times import BUDGETS, TorchCut, TorchSaved
from relascope.engine.pytorch.model import kept_buffers
from relascope.engine.pytorch.nested import flat_tensors
from relascope.passes.cuts.joint import DRAWN, Joint
from relascope.passes.cuts.lifetimes import peak

_UNSAFE_VIEWS = ("aten::_unsafe_view", "aten::_reshape_alias")
_SEEDS, _UNIFORM, _BERNOULLI = "random.seeds", "random.uniform", "random.bernoulli"
_NAMES = {  # ours, of the operators that Inductor's decompositions leave
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), "matmul"),
    **dict.fromkeys(("convert_element_type", "_to_copy"), "astype"),
    **dict.fromkeys(("index", "_unsafe_index"), "index_tensor"),
    **{"mul": "multiply", "sub": "subtract", "div": "divide", "pow": "power", "fma": "multiply"},
    **{"neg": "negative", "clone": "copy", "amax": "max", "amin": "min", "var_mean": "variance"},
    **{"gt": "greater", "ge": "greater_equal", "lt": "less", "le": "less_equal", "eq": "equal"},
    **{"ne": "not_equal", "relu": "nn.relu", "_softmax": "nn.softmax", "cat": "concat"},
    **{"embedding": "take", "embedding_dense_backward": "index_put", "scatter_add": "scatter"},
    **{"convolution": "nn.conv2d", "convolution_backward": "nn.conv2d_backward"},
    **{"clamp_min": "maximum", "clamp_max": "minimum", "constant_pad_nd": "nn.pad"},
    **{"inductor_seeds": _SEEDS, "inductor_random": _UNIFORM, "bernoulli": _BERNOULLI},
    "_scaled_dot_product_flash_attention_for_cpu": "nn.attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "nn.attention",
}


Partition = tuple[Any, int, list[Any]]
"""A joint FX graph, the number of results of the forward, and what it saves besides them."""


def torch_saved(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    budgets: Sequence[float] = BUDGETS[0],
    estimated: bool = False,
    tell: Callable[[int], None] = lambda index: None,
) -> TorchSaved:
    """What autograd saves, and PyTorch's partitioner within some budgets, with time and peak of
    each if `estimated`; `tell` gets the number of each budget before it is cut. The module and
    PyTorch's generator are left as they were."""
    with torch.random.fork_rng(devices=[]), kept_buffers(module):
        eager = eager_bytes(module, inputs)
        if isinstance(module, torch.jit.ScriptModule):
            why = "PyTorch's partitioner takes only Python modules; this is a TorchScript file."
            return TorchSaved(eager, (), why)
        try:
            found = partitions(module, inputs, budgets, tell)
        except Exception as error:  # AOTAutograd raises errors of many kinds
            said = lines_of(error)[0].rstrip(".")
            why = f"PyTorch's partitioner cannot handle this module: {said}."
            return TorchSaved(eager, (), why)
        pairs = zip(budgets, found, strict=True)
        return TorchSaved(eager, tuple(_cut(*pair, estimated) for pair in pairs))


def _cut(budget: float, of: Partition, estimated: bool) -> TorchCut:
    joint, saved = joint_and_saved(of)
    again = [joint.graph.by_id[i].op for i in joint.computed_again(saved)]
    anew = again.count(_BERNOULLI) + (again.count(_UNIFORM) if _SEEDS in again else 0)
    share = joint.net_share(saved) if estimated else None
    high = peak(joint, saved) if estimated else None
    return TorchCut(budget, joint.bytes_of(saved), share, high, anew)


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


def partitions(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    budgets: Sequence[float],
    tell: Callable[[int], None] = lambda index: None,
) -> list[Partition]:
    """How AOTAutograd's min-cut partitioner cuts a module within each `activation_memory_budget`:
    after Inductor's decompositions and its passes over the joint graph, but without its fusion.
    Raises RuntimeError unless the module is one graph."""
    from torch._functorch import config
    from torch._functorch.aot_autograd import aot_module
    from torch._functorch.compilers import nop
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
        for index, budget in enumerate(budgets):
            tell(index)
            with config.patch(activation_memory_budget=budget):
                given = deepcopy(joint) if len(budgets) > 1 else joint
                forward, backward = min_cut_rematerialization_partition(given, arguments, **options)
            results, own = forward.graph.output_node().args[0], options["num_fwd_outputs"]
            # The partitioner has merged what is computed twice in what it was given.
            found.append((given, own, list(results[own:])))
        return forward, backward

    # An exported program returns one tensor as a tuple, and else as it is while it is traced.
    flat = module.register_forward_hook(lambda module, args, output: flat_tensors(output))
    how: dict[str, Any] = {"partition_fn": partition, "decompositions": select_decomp_table()}
    with flat:
        aot_module(module, fw_compiler=nop, bw_compiler=nop, **how)(*_wanting(inputs))
    if len(found) != len(budgets):
        times = len(found) // len(budgets)
        raise RuntimeError(f"the module was partitioned {times} times, not once")
    return found


def _wanting(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    wanting = ((t, t.is_floating_point() or t.is_complex()) for t in inputs)
    return [t.detach().clone().requires_grad_(wants) for t, wants in wanting]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def joint_graph(of: Partition) -> Graph:
    """PyTorch's joint graph as a neutral one, which has FX's names as ids and our names of
    operators; views have the storage of what they are of."""
    nodes = []
    first = next(n.name for n in of[0].graph.nodes)
    for node in of[0].graph.nodes:
        kind, name, attrs = Kind.CALL, "", {}
        values = [v for v in tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
        types = tuple(TensorType((*v.shape,), str(v.dtype).removeprefix("torch.")) for v in values)
        reads = tuple(n.name for n in node.all_input_nodes)
        if node.op != "call_function":
            kind = Kind.INPUT if node.op == "placeholder" else Kind.CONSTANT
        elif _viewed(node) is not None:
            name = "reshape"
        elif hasattr(node.target, "_schema"):
            name = node.target._schema.name.partition("::")[2]
            if name in ("addmm", "baddbmm"):  # as a product, whose summand is the last
                reads = (*reads[1:], reads[0])
            name = _NAMES.get(name, name)
            if name == _SEEDS:  # read nothing, and are no constants
                reads = (first,)
            elif name in (_UNIFORM, _BERNOULLI):
                attrs = {"flops": DRAWN * (types[0].elements or 0)}
        else:
            kind, attrs = Kind.ITEM, {"index": node.args[1]}
        nodes.append(Node(node.name, kind, name, node.name, attrs, reads, types))
    ends = tuple(a.name for a in tree_leaves(of[0].graph.output_node().args[0]) if a is not None)
    inputs = tuple(n.id for n in nodes if n.kind is Kind.INPUT)
    return Graph("joint", "relax", tuple(nodes[:-1]), inputs, ends, of[1])


def joint_and_saved(of: Partition) -> tuple[Joint, tuple[str, ...]]:
    """PyTorch's joint graph, whose forward also computes what of the backward PyTorch moves there
    and saves, and ids of the storages that it saves, without inputs."""
    bases = dict.fromkeys(_base(n).name for n in of[2] if isinstance(n, torch.fx.Node))
    joint = Joint(joint_graph(of), early=tuple(bases))
    return joint, tuple(filter(joint.may_be_captured, bases))


def _base(node: torch.fx.Node) -> torch.fx.Node:
    while (viewed := _viewed(node)) is not None:
        node = viewed
    return node


def _viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a node is a view of; None where it is none."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    # An item of a list of views is a view, one of results is a result.
    schemas = [getattr(n.target, "_schema", None) for n in (node, node.args[0])]
    schema = schemas[0] or schemas[1]
    if schema is None or not schema.arguments:
        return None
    alias = schema.arguments[0].alias_info
    views = schema.name in _UNSAFE_VIEWS or (alias is not None and not alias.is_write)
    return node.args[0] if views else None
