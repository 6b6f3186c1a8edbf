"""The way to the gradient: every operator's gradient against PyTorch's, and both halves."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from tvm import relax

import gradients as engine
from answers import refused
from gradients import Fn, Many, compare, joint, operators, passes, step, to_graph, trained
from joint_programs import *  # noqa: F403
from limits import LIMITS
from quick import combinations, rare
from relascope.core.errors import EngineError
from relascope.core.graph import Kind
from relascope.passes.cuts.joint import Joint
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.training.split import split
from relax_modules import program
from splitting import *  # noqa: F403

ONLY_FLOAT32 = "F.hardsigmoid"  # whose gradient takes a sixth in float32 in PyTorch itself
SECTIONS = (
    *("products", "kinks and ties", "one by one", "views and places", "rows", "images", "pools"),
    *("written out", "scattered", "of two"),
)


MORE = "more products", "more images", "more pools"
"""Forms of what is among the others, which take the same way."""


@pytest.mark.parametrize(
    ("section", "dtype"),
    [*combinations(SECTIONS, list(LIMITS)), *(rare(s, d) for s in MORE for d in LIMITS)],
)
def test_gradients_of_operators_agree_with_autograd(section, dtype):
    all_of_it = operators()[section].items()
    left_out = () if dtype == "float32" else ONLY_FLOAT32
    functions = [function for line, function in all_of_it if not line.startswith(left_out)]
    to = getattr(torch, dtype)
    inputs = [x.to(to) for _, (x, *_) in functions]
    model, program = trained(Many(functions).to(to), *inputs, dtype=dtype)
    outputs, gradients = step(model, joint(program))
    compare(model, outputs, gradients)


@pytest.mark.parametrize(
    ("function", "words", "size"),
    [
        (lambda x: F.pad(x, (1, -1, 1, 1), mode="replicate"), "negative", (1, 2, 8, 8)),
        (lambda x: torch.einsum("abii->abi", x), "einsum", (1, 2, 8, 8)),
    ],
)
def test_a_form_of_an_operator_without_gradient_is_refused(function, words, size):
    _, made = trained(Fn(function), torch.randn(size))
    with pytest.raises(EngineError, match=words) as raised:
        joint(made)
    assert raised.value.kind == "pass"
    assert "from aten::" in raised.value.where


def test_steps_out_of_order_are_said_to_be():
    _, program = trained(Fn(lambda x: x * 2), torch.randn(2, 3))
    with refused(match="no scalar", hint="root_grad_out"):
        passes(program, "gradient")
    with pytest.raises(EngineError, match="already exists"):
        passes(program, "root_grad_out|root_grad_out")


def test_a_deep_chain_has_a_gradient_without_recursion():
    def chain(x):
        for _ in range(1200):
            x = relax.BlockBuilder.current().emit(relax.op.sin(x))
        return x

    made = joint(RelaxProgram(program(chain, ((2,), "float32")), {}, ("x0",), 1))
    graph, _ = engine.to_graph(made)
    assert graph.operators["cos"] == graph.operators["sin"] == 1200
    assert not engine.split_by(made, "inputs_only").captures


def test_what_is_computed_again_comes_right_before_its_reader_whatever_the_forward_reads():
    """The second product reads the first tanh, but in the forward alone."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    whole = joint(trained(module, torch.randn(3, 4))[1])
    graph, exprs = to_graph(whole)
    both = Joint(graph)
    ids = [graph.by_id[n.id].edges[0] for n in graph if n.op == "tanh" and n.id in both.forward]
    parts = split(whole, graph, exprs, ids)
    calls = [n.op for n in to_graph(parts.backward, "backward")[0] if n.kind is Kind.CALL]
    first, second = (k for k, op in enumerate(calls) if op == "tanh")
    assert "matmul" in calls[first:second]
