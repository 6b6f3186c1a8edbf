"""What PyTorch computes inside a model: the result of every operator, and its gradient.

The flat trace is run with every result returned. Knows torch and no TVM.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from relascope.engine.pytorch.flat_trace import TraceOrigin, returned
from relascope.engine.pytorch.model import Model, seeded

_NOT_VALUES = ("prim::NumToTensor",)  # numbers that shapes are computed of


@dataclass(frozen=True)
class Reference:
    """The insides of one run of a model. `results` has each operator's origin and its results right
    after it ran, by its place in the order of execution. `gradients` has origins ("aten::gelu in
    intermediate") and gradients of the inputs, the parameters, and every result that an output
    depends on; it is empty if not wanted. `others` are further tensors that a node may be, by
    name."""

    results: dict[int, tuple[TraceOrigin, tuple[torch.Tensor, ...]]]
    gradients: tuple[tuple[str, torch.Tensor], ...] = field(default=())
    others: tuple[tuple[str, torch.Tensor], ...] = field(default=())


def run_inside(model: Model, gradients: bool) -> Reference:
    """Run a model's trace once, on the CPU, with its source's seed, mode and inputs; for gradients,
    outputs are weighted by `model.grad_outs()`."""
    graph, values = _handing_out(model)
    run = torch._C._create_function_from_graph("inside", graph)
    given = dict(zip(model.flat.input_names, model.inputs, strict=True))
    tensors = {**given, **model.flat.tensors}
    floating = {n for n, t in tensors.items() if t.is_floating_point()}
    wanted = floating.difference(model.buffers) if gradients else set()
    leaves = {n: t.detach().requires_grad_(n in wanted) for n, t in tensors.items()}
    by_operators = torch.jit.optimized_execution(False)
    with seeded(model.source.seed), torch.set_grad_enabled(gradients), by_operators:
        # An operator in place must not change a leaf or the caller's tensor.
        made = run(*(t.clone() for t in leaves.values()))
    live, then = made[0 : 2 * len(values) : 2], made[1 : 2 * len(values) : 2]
    outputs = made[2 * len(values) :]
    results: dict[int, tuple[TraceOrigin, tuple[torch.Tensor, ...]]] = {}
    for origin, value in zip(values, then, strict=True):
        before = results.get(origin.ordinal, (origin, ()))[1]
        results[origin.ordinal] = origin, (*before, value.detach())
    if not gradients:
        return Reference(results)
    named = [*leaves.items(), *((o.origin.place, t) for o, t in zip(values, live, strict=True))]
    named = [(name, tensor) for name, tensor in named if tensor.requires_grad]
    found = model.backward(outputs, [t for _, t in named], model.grad_outs())
    pairs = zip(named, found, strict=True)
    return Reference(results, tuple((n, g.detach()) for (n, _), g in pairs if g is not None))


def _handing_out(model: Model) -> tuple[Any, list[TraceOrigin]]:
    """A copy of the trace that returns one flat tuple: each operator's result and a copy made at
    once, then the outputs; and the results' origins.

    A later operator in place changes the tensor, not the copy; a gradient is the tensor's.
    """
    graph = model.flat.graph.copy()
    none = graph.insertConstant(None)
    none.node().moveBefore(next(iter(graph.nodes())))
    handed: list[Any] = []
    origins: list[TraceOrigin] = []
    for node in list(graph.nodes()):
        origin = model.flat.origin(node)
        if origin.ordinal < 0 or node.kind() in _NOT_VALUES or node.kind() == "prim::Constant":
            continue
        after = node
        for value in node.outputs():
            if value.type().kind() != "TensorType":
                continue
            clone = graph.create("aten::clone", [value, none], 1)
            clone.insertAfter(after)
            after = clone
            handed += [value, clone.output()]
            origins.append(origin)
    returned(graph, [*handed, *graph.outputs()])
    return graph, origins
