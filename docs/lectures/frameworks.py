"""From torch.fx to Relax by hand: a graph of modules and functions, and a rule for each."""

import operator
import sys
from pathlib import Path

import torch
from torch import fx, nn
from tvm import relax

OPS = relax.op


class Scores(nn.Module):
    """Two dense layers with a relu, and the input's own scores added: (batch, 16) to (batch, 4)."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out, self.own = nn.Linear(16, 8), nn.Linear(8, 4), nn.Linear(16, 4)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x))) + self.own(x)


def model():
    """The model, and its inputs."""
    torch.manual_seed(0)
    return Scores().eval(), (torch.randn(2, 16),)


def _variable(name, tensor):
    dtype = str(tensor.dtype).removeprefix("torch.")
    return relax.Var(name, relax.TensorType(tuple(tensor.shape), dtype))


def _linear(emit, params, name, x):
    product = emit(OPS.matmul(x, emit(OPS.permute_dims(params[f"{name}.weight"]))))
    return emit(OPS.add(product, params[f"{name}.bias"]))


FUNCTIONS = {torch.relu: OPS.nn.relu, operator.add: OPS.add}


def translate(module, inputs):
    """A module in Relax whose arguments are inputs and then parameters."""
    traced, builder = fx.symbolic_trace(module), relax.BlockBuilder()
    places = [node for node in traced.graph.nodes if node.op == "placeholder"]
    values = {node: _variable(node.name, x) for node, x in zip(places, inputs, strict=True)}
    params = {name: _variable(name.replace(".", "_"), p) for name, p in module.named_parameters()}
    with builder.function("main", [*values.values(), *params.values()]):
        with builder.dataflow():
            for node in traced.graph.nodes:
                args = [values.get(a, a) for a in node.args]
                target = traced.get_submodule(node.target) if node.op == "call_module" else None
                if isinstance(target, nn.Linear):
                    values[node] = _linear(builder.emit, params, node.target, *args)
                elif node.op == "call_function" and node.target in FUNCTIONS:
                    values[node] = builder.emit(FUNCTIONS[node.target](*args))
                elif node.op == "output":
                    out = builder.emit_output(*args)
                elif node.op != "placeholder":
                    raise NotImplementedError(f"{node.name}: no rule for {node.target}")
        builder.emit_func_output(out)
    return builder.get()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(translate(*model()).script())
