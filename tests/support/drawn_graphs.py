"""Graphs that hypothesis draws, and shrinks where one shows a fault; seeds of those of others."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from relascope.core.graph import Graph, Kind, Literal, Node, TensorType

few = settings(deadline=None, derandomize=True, max_examples=25)
"""Enough to find what is wrong, within seconds."""


def seeds(every: int, most: int) -> list:
    """So many for each run, and the rest of the most for an exhaustive one."""
    rest = (pytest.param(s, marks=pytest.mark.exhaustive) for s in range(every, most))
    return [*range(every), *rest]


SCOPES = ("", "embed", "encoder.layer.0", "encoder.layer.0.norm", "encoder.layer.1", "head")
OPERATORS = ("add", "multiply", "exp", "nn.dense", "sum", "reshape", "nn.softmax")
_sizes = st.lists(st.sampled_from([1, 2, 3, 8, "n"]), max_size=3).map(tuple)
_types = st.builds(TensorType, _sizes, st.sampled_from(["float32", "float64", "int8", "custom"]))


@st.composite
def graphs(draw, most: int = 14, known: bool = False, scopes: bool = True) -> Graph:
    """A graph of up to `most` operators over inputs, parameters and constants, with all dimensions
    `known` or not, with modules if `scopes`."""
    types = st.just(TensorType((4, 8), "float32")) if known else _types
    scope = st.sampled_from(SCOPES) if scopes else st.just("")
    nodes: list[Node] = []
    for index in range(draw(st.integers(1, 4))):
        kind = Kind.INPUT if not index else draw(st.sampled_from(LEAVES))
        attrs = {"digest": f"d{index}", "value": "1"} if kind is Kind.CONSTANT else {}
        nodes.append(Node(f"l{index}", kind, name=f"x{index}", attrs=attrs, outputs=(draw(types),)))
    for index in range(draw(st.integers(1, most))):
        read = draw(st.lists(st.sampled_from([n.id for n in nodes]), min_size=1, max_size=3))
        more = [Literal("2")] if not known and draw(st.booleans()) else []
        attrs = draw(st.dictionaries(st.sampled_from(["axis", "axes"]), _values, max_size=2))
        about = Kind.CALL, draw(st.sampled_from(OPERATORS)), "", attrs
        outputs = (draw(types),)
        nodes.append(Node(f"n{index}", *about, (*read, *more), outputs, draw(scope)))
    ids = [n.id for n in nodes]
    outputs = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3))
    arguments = tuple(n.id for n in nodes if n.kind in (Kind.INPUT, Kind.PARAMETER))
    return Graph("main", "relay", tuple(nodes), arguments, tuple(outputs))


LEAVES = (Kind.INPUT, Kind.PARAMETER, Kind.CONSTANT)
_values = st.one_of(st.integers(-2, 3), st.booleans(), st.lists(st.integers(0, 2), max_size=2))


@st.composite
def joint_graphs(draw, most: int = 8) -> Graph:
    """A joint graph: a forward, some inputs of which are masks, and a backward operator that reads
    each."""
    forward = draw(graphs(most, known=True, scopes=False))
    calls = [n for n in forward.nodes if n.kind is Kind.CALL]
    end = calls[-1]
    seed = Node("g", Kind.INPUT, name="grad_out_0", outputs=end.outputs)
    inputs = [n.id for n in forward.nodes if n.kind is Kind.INPUT]
    masks = draw(st.sets(st.sampled_from(inputs)))
    named = [replace(n, name=f"dropout_mask_{n.id}") if n.id in masks else n for n in forward.nodes]
    nodes, last = [*named, seed], "g"
    for node in reversed(calls):
        read = draw(st.lists(st.sampled_from([node.id, *node.edges]), min_size=1, max_size=2))
        about = {"inputs": (last, *read), "outputs": end.outputs}
        last = f"b.{node.id}"
        nodes.append(Node(last, Kind.CALL, "multiply", **about))
    ends = (*forward.inputs, "g"), (end.id, last)
    return Graph("main", "relay", tuple(nodes), *ends, forward_outputs=1)
