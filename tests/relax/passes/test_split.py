"""The forward and the backward program of Relax's joint programs."""

import torch
from torch import nn

from gradients import joint, to_graph, trained
from relascope.core.graph import Kind
from relascope.passes.cuts.joint import Joint
from relascope.passes.relax.training.split import split
from splitting import *  # noqa: F403


def test_what_is_computed_again_comes_right_before_its_reader_whatever_the_forward_reads():
    """The second product reads the first tanh, but in the forward alone."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    program = joint(trained(module, torch.randn(3, 4))[1])
    graph, exprs = to_graph(program)
    both = Joint(graph)
    ids = [graph.by_id[n.id].edges[0] for n in graph if n.op == "tanh" and n.id in both.forward]
    parts = split(program, graph, exprs, ids)
    calls = [n.op for n in to_graph(parts.backward, "backward")[0] if n.kind is Kind.CALL]
    first, second = (k for k, op in enumerate(calls) if op == "tanh")
    assert "matmul" in calls[first:second]
