"""Small joint graphs, for tests of cuts."""

import itertools
import random

from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.passes.cuts.cut import Joint

F32 = "float32"


OPS = ("nn.dense", "add", "tanh", "mean", "multiply", "reshape", "transpose", "exp")


def tensor(*shape, dtype=F32):
    return TensorType(shape, dtype)


def node(ident, kind=Kind.CALL, reads=(), out=None, **fields):
    outputs = out if isinstance(out, tuple) else (out or tensor(2, 4),)
    fields.setdefault("op", ident if kind is Kind.CALL else "")
    fields.setdefault("name", ident if kind in (Kind.INPUT, Kind.PARAMETER) else "")
    return Node(ident, kind, inputs=tuple(reads), outputs=outputs, **fields)


def joint(*nodes, outputs, gradients):
    inputs = tuple(n.id for n in nodes if n.kind in (Kind.INPUT, Kind.PARAMETER))
    graph = Graph("main", "relay", nodes, inputs, (*outputs, *gradients), len(outputs))
    graph.validate()
    return graph


def small():
    """y = drop(tanh(x @ w)); its gradients read x, w, tanh and the mask."""
    return joint(
        node("x", Kind.INPUT),
        node("w", Kind.PARAMETER, out=tensor(4, 4)),
        node("m", Kind.INPUT, name="dropout_mask_0"),
        node("g", Kind.INPUT, name="grad_out_0"),
        node("h", reads=("x", "w"), scope="fc", source="aten::linear"),
        node("t", reads=("h",), scope="act", source="aten::tanh"),
        node("y", reads=("t", "m")),
        node("dt", reads=("g", "m")),
        node("dh", reads=("dt", "t")),
        node("dx", reads=("dh", "w")),
        node("dw", reads=("x", "dh"), out=tensor(4, 4)),
        outputs=("y",),
        gradients=("dx", "dw"),
    )


def split_graph(*backward, gradients, shared=True):
    """split(x) gives two tensors; only the first goes into the output."""
    two = (tensor(2, 2), tensor(2, 2))
    return joint(
        node("x", Kind.INPUT),
        node("g", Kind.INPUT),
        node("s", reads=("x",), out=two),
        node("s0", Kind.ITEM, ("s",), out=tensor(2, 2), attrs={"index": 0}),
        node("y", reads=("s0",)),
        *backward,
        outputs=("y",),
        gradients=gradients,
    )


def messy(seed, values, reach=4, crossing=0.6):
    """A joint graph of `values` values in a mess, sizes and operators drawn."""
    draw = random.Random(seed)
    nodes = [node("x", Kind.INPUT, out=tensor(4, 4)), node("g", Kind.INPUT)]
    names = ["x"]
    for i in range(values):
        reads = tuple({draw.choice(names[-reach:]) for _ in range(draw.randint(1, 3))})
        op = draw.choice(OPS)
        size = tensor(draw.randint(1, 40), 4)
        if op == "reshape":
            reads = reads[:1]
            size = next(n for n in nodes if n.id == reads[0]).outputs[0]
        nodes.append(node(f"f{i}", reads=sorted(reads), op=op, out=size))
        names.append(f"f{i}")
    before = "g"
    for i in reversed(range(values)):
        extra = (f"f{i}",) if draw.random() < crossing else ()
        nodes.append(node(f"b{i}", reads=(before, *extra), op="multiply"))
        before = f"b{i}"
    return joint(*nodes, outputs=(f"f{values - 1}",), gradients=(before,))


def choices(graph):
    """Every set of captures there is, with what is computed again."""
    it = Joint(graph)
    can = [n.id for n in graph.nodes if it.may_be_captured(n.id)]
    for count in range(len(can) + 1):
        for chosen in itertools.combinations(can, count):
            yield it, frozenset(chosen), it.computed_again(chosen)


def seconds(it, ids):
    return sum(it.work.seconds[i] for i in ids)


def views():
    """The backward reads two views of one tensor, and a view of the input."""
    return joint(
        node("x", Kind.INPUT, out=tensor(2, 4)),
        node("w", Kind.PARAMETER, out=tensor(4, 4)),
        node("g", Kind.INPUT),
        node("v", reads=("x",), op="reshape", out=tensor(8)),
        node("h", reads=("x", "w"), op="nn.dense"),
        node("a", reads=("h",), op="reshape", out=tensor(8)),
        node("b", reads=("h",), op="expand_dims", out=tensor(1, 2, 4)),
        node("y", reads=("a", "b", "v"), op="add"),
        node("dx", reads=("g", "a", "b", "v"), op="multiply"),
        outputs=("y",),
        gradients=("dx",),
    )


def chain():
    """a, b, c in a row, whose backward reads b and c; u is read by nothing of the backward."""
    return joint(
        node("x", Kind.INPUT),
        node("g", Kind.INPUT),
        node("a", reads=("x",), op="exp"),
        node("b", reads=("a",), op="tanh", out=tensor(4, 8)),
        node("c", reads=("b",), op="tanh", out=tensor(4, 16)),
        node("y", reads=("c",), op="exp"),
        node("u", reads=("x",), op="exp"),
        node("dc", reads=("g", "c"), op="multiply"),
        node("db", reads=("dc", "b"), op="multiply"),
        outputs=("y", "u"),
        gradients=("db",),
    )
