"""Small joint graphs, for tests of cuts."""

import itertools
import random

from graphs import graph_of
from relascope.passes.cuts.cut import Joint

OPS = ("nn.dense", "add", "tanh", "mean", "multiply", "reshape", "transpose", "exp")


def small():
    """y = drop(tanh(x @ w)); its gradients read x, w, tanh and the mask."""
    return graph_of(
        "x; w! :4x4; m=dropout_mask_0; g=grad_out_0; h . x w @fc <aten::linear;"
        " t . h @act <aten::tanh; y . t m; dt . g m; dh . dt t; dx . dh w;"
        " dw . x dh :4x4 -> y | dx dw"
    )


def split_graph(backward):
    """split(x) gives two tensors; only the first goes into the output."""
    text = f"x; g; s . x :2x2 :2x2; s0 [0] s :2x2; y . s0; {backward}"
    return graph_of(text, "y", gradients="dx")


def messy(seed, values, reach=4, crossing=0.6):
    """A joint graph of `values` values in a mess, sizes and operators drawn."""
    draw = random.Random(seed)
    text, sizes = "x :4x4; g", {"x": 4}
    for i in range(values):
        names = list(sizes)[-reach:]
        reads = tuple({draw.choice(names) for _ in range(draw.randint(1, 3))})
        op = draw.choice(OPS)
        size = draw.randint(1, 40)
        if op == "reshape":
            reads = reads[:1]
            size = sizes[reads[0]]
        text += f"; f{i} {op} {' '.join(sorted(reads))} :{size}x4"
        sizes[f"f{i}"] = size
    before = "g"
    for i in reversed(range(values)):
        extra = f"f{i}" if draw.random() < crossing else ""
        text += f"; b{i} multiply {before} {extra}"
        before = f"b{i}"
    return graph_of(text, f"f{values - 1}", gradients=before)


def choices(graph):
    """Every set of captures there is, with what is computed again."""
    it = Joint(graph)
    can = [n.id for n in graph.nodes if it.may_be_captured(n.id)]
    for count in range(len(can) + 1):
        for chosen in itertools.combinations(can, count):
            yield it, frozenset(chosen), it.computed_again(chosen)


def views():
    """The backward reads two views of one tensor, and a view of the input."""
    return graph_of(
        "x; w! :4x4; g; v reshape x :8; h nn.dense x w; a reshape h :8; b expand_dims h :1x2x4;"
        " y add a b v; dx multiply g a b v -> y | dx"
    )


def chain():
    """a, b, c in a row, whose backward reads b and c; u is read by nothing of the backward."""
    return graph_of(
        "x; g; a exp x; b tanh a :4x8; c tanh b :4x16; y exp c; u exp x; dc multiply g c;"
        " db multiply dc b -> y u | db"
    )
