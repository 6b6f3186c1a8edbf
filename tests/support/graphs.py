"""Graphs made by hand for tests: small ones, a transformer's layers, random ones."""

import random
import re
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import replace

from relascope.core.graph import Graph, Kind, Node, Role, TensorType

_HEAD = re.compile(r"([^=!#]+)([=!#]?)(.*)")


def _type(word: str) -> TensorType:
    sizes, _, dtype = word.partition("/")
    shape = (int(s) if s.isdigit() else s for s in sizes.split("x") if s)
    return TensorType(tuple(shape), dtype or "float32")


def _node(statement: str, of: str) -> Node:
    head, *words = statement.split()
    ident, mark, more = _HEAD.fullmatch(head).groups()
    attrs = {"digest": more} if mark == "#" else {}
    at = {prefix: [w[1:] for w in words if w[0] == prefix] for prefix in "@<:"}
    plain = [w for w in words if w[0] not in at]
    attrs |= {w.split("=")[0]: literal_eval(w.split("=")[1]) for w in plain if "=" in w}
    op, *reads = [w for w in plain if "=" not in w] or [""]
    kind = {"!": Kind.PARAMETER, "#": Kind.CONSTANT}.get(mark, Kind.CALL if op else Kind.INPUT)
    name = (more or ident) if kind in (Kind.INPUT, Kind.PARAMETER) else ""
    if op == "()" or op[:1] == "[":
        kind = Kind.TUPLE if op == "()" else Kind.ITEM
        attrs |= {"index": int(op[1:-1])} if kind is Kind.ITEM else {}
        op = ""
    outputs = tuple(map(_type, at[":"] or [of]))
    scope, source = ((*at[prefix], "")[0].replace("~", " ") for prefix in "@<")
    op = ident if op == "." else op
    return Node(ident, kind, op, name, attrs, tuple(reads), outputs, scope, source)


def nodes_of(text: str, of: str = "2x4") -> list[Node]:
    """Nodes as text: an id, an operator and what it reads, with semicolons between nodes.

    "x; w!; k#1; a exp x; b . a w @m <aten::mul axis=0 :4x8/float16; t () a b; i [0] t" has an
    input, a parameter, a constant by its digest; a call; one whose operator is named as it is,
    with module, source, attribute and type; a tuple, an item. "x=name" and "w!name" have names of
    their own; "~" is a space.

    Args:
        of: the type of what has none."""
    return [_node(statement, of) for statement in text.split(";")]


def group(ident: str, op: str, read: str, body: Graph, of: str = "2x4") -> Node:
    return Node(ident, Kind.FUNCTION, op, inputs=(read,), outputs=(_type(of),), body=body)


def graph_of(
    made: str | Sequence[Node | str],
    outputs: str = "",
    *,
    ir: str = "relay",
    of: str = "2x4",
    gradients: str = "",
    name: str = "main",
) -> Graph:
    """A graph of nodes, as text or between others; its result is the last, or the ids in a text;
    `gradients` are those of a joint graph. One text may say both at its end: "… -> y | dx dw"."""
    if isinstance(made, str) and " -> " in made:
        made, _, ends = made.partition(" -> ")
        outputs, _, gradients = ends.partition(" | ")
    parts = [made] if isinstance(made, str) else made
    found = [n for p in parts for n in (nodes_of(p, of) if isinstance(p, str) else [p])]
    inputs = tuple(n.id for n in found if n.kind in (Kind.INPUT, Kind.PARAMETER))
    ends = tuple((outputs or found[-1].id).split())
    forward = len(ends) if gradients else None
    whole = Graph(name, ir, tuple(found), inputs, (*ends, *gradients.split()), forward)
    whole.validate()
    return whole


class Text:
    """A graph as text, whose nodes get the ids n0, n1, … in turn."""

    def __init__(self) -> None:
        self.nodes: list[str] = []

    def add(self, words: str) -> str:
        """A node whose text goes on with these words; its id."""
        ident = f"n{len(self.nodes)}"
        self.nodes.append(ident + words)
        return ident

    def graph(self, name: str) -> Graph:
        return graph_of(";".join(self.nodes), of="1x14x64", name=name)

    def linear(self, x: str, scope: str, wide: int = 64, into: int = 64) -> str:
        at, shape = f"@{scope}", f":1x14x{wide}"
        weight = self.add(f"!{scope}.weight :{wide}x{into} {at}")
        bias = self.add(f"!{scope}.bias :{wide} {at}")
        turned = self.add(f" transpose {weight} :{into}x{wide} {at} axes=[1,0]")
        product = self.add(f" nn.batch_matmul {x} {turned} {shape} {at} transpose_b=False")
        return self.add(f" add {product} {bias} {shape} {at}")

    def norm(self, x: str, scope: str) -> str:
        gamma, beta = (self.add(f"!{scope}.{n} :64 @{scope}") for n in ("weight", "bias"))
        return self.add(f" nn.layer_norm {x} {gamma} {beta} @{scope} axis=-1 epsilon=1e-12")

    def scaled(self, op: str, x: str, by: float, at: str) -> str:
        constant = self.add(f"#{by} value='{by}' : {at.split()[0]}")
        return self.add(f" {op} {x} {constant} {at}")

    def layer(self, x: str, mask: str, prefix: str) -> str:
        heads, at = [], f"@{prefix}attention.self"
        for name in ("query", "key", "value"):
            out = self.linear(x, f"{at[1:]}.{name}")
            split = self.add(f" reshape {out} :1x14x4x16 {at} newshape=[1,14,4,16]")
            heads.append(self.add(f" transpose {split} :1x4x14x16 {at} axes=[0,2,1,3]"))
        query, key, value = heads
        key, square = self.add(f" transpose {key} :1x4x16x14 {at} axes=[0,1,3,2]"), ":1x4x14x14"
        scores = self.add(f" nn.batch_matmul {query} {key} {square} {at}")
        divided = self.scaled("divide", scores, 4.0, f"{at} {square}")
        masked = self.add(f" add {divided} {mask} {square} {at}")
        soft = self.add(f" nn.softmax {masked} {square} {at} axis=-1")
        mixed = self.add(f" nn.batch_matmul {soft} {value} :1x4x14x16 {at}")
        back = self.add(f" transpose {mixed} :1x14x4x16 {at} axes=[0,2,1,3]")
        joined = self.add(f" reshape {back} {at} newshape=[1,14,64]")
        at = f"{prefix}attention.output"
        dense = self.linear(joined, f"{at}.dense")
        middle = self.norm(self.add(f" add {dense} {x} @{at}"), f"{at}.LayerNorm")
        wide = self.linear(middle, f"{prefix}intermediate.dense", 256, 64)
        at = f"@{prefix}intermediate.act :1x14x256"
        inner = self.add(f" erf {self.scaled('multiply', wide, 0.7071, at)} {at}")
        half = self.scaled("add", inner, 1.0, at)
        gelu = self.scaled("multiply", self.add(f" multiply {wide} {half} {at}"), 0.5, at)
        out, at = self.linear(gelu, f"{prefix}output.dense", 64, 256), f"{prefix}output"
        return self.norm(self.add(f" add {out} {middle} @{at}"), f"{at}.LayerNorm")


def transformer(layers: int = 1) -> Graph:
    """BERT's encoder with made-up sizes: about 60 nodes a layer, module paths as PyTorch's."""
    text = Text()
    x, mask = text.add("=hidden_states"), text.add("=attention_mask :1x1x1x14")
    for i in range(layers):
        x = text.layer(x, mask, "" if layers == 1 else f"encoder.layer.{i}.")
    return text.graph("main")


def joint(layers: int = 1) -> Graph:
    """A transformer with a backward of about twice its calls, which reads forward values."""
    forward = transformer(layers)
    calls = [n for n in forward.nodes if n.kind is Kind.CALL]
    saved = {n.id for n in calls if n.op not in ("transpose", "reshape")}
    roles = {n.id: Role.CAPTURED if n.id in saved else Role.FORWARD for n in forward.nodes}
    nodes = [replace(n, role=roles[n.id], source="") for n in forward.nodes]
    nodes += nodes_of("grad_out", of="1x14x64")
    for node in reversed(calls):
        about = {"outputs": node.outputs, "scope": node.scope, "role": Role.BACKWARD}
        near, ident = node.id if node.id in saved else node.edges[0], f"g1.{node.id}"
        nodes.append(Node(ident, Kind.CALL, "multiply", inputs=(nodes[-1].id, near), **about))
        nodes.append(Node(f"g2.{node.id}", Kind.CALL, "sum", inputs=(ident,), **about))
    return graph_of(nodes, forward.outputs[0], gradients=nodes[-1].id, name="joint")


def random_graph(seed: int, nodes: int = 120, scopes: int = 6) -> Graph:
    """Any connected or unconnected graph: groups may well feed and be fed by one node."""
    draw, text = random.Random(seed), Text()
    lengths = (draw.randint(1, 3) for _ in range(scopes))
    paths = ["", *(".".join(f"m{draw.randrange(3)}" for _ in range(n)) for n in lengths)]
    for i in range(nodes):
        scope = draw.choice(paths)
        count = draw.randint(0, 3) if i else 0
        reach = [f"n{draw.randrange(max(0, i - 30), i)}" for _ in range(count)]
        op = draw.choice(["add", "nn.dense", "reshape", "nn.conv2d"]) if reach else ""
        text.add(f"{'' if reach else f'=x{i}'} {op} {' '.join(reach)} @{scope}")
    return text.graph(f"random{seed}")


def chain(nodes: int) -> Graph:
    calls = (f"; n{i} nn.relu n{i - 1}" for i in range(1, nodes))
    return graph_of("n0=x" + "".join(calls), of="1x14x64", name="chain")


def fused() -> Graph:
    """Two fused functions, one with two results, of which fields are taken."""
    first = graph_of("n0=p0; n1 nn.dense n0; n2 add n1; n3 nn.relu n2", of="1x14x64", name="body")
    second = graph_of("n0=p0; n1 split n0; n2 multiply n1", of="1x14x64", name="body")
    types = (TensorType((1, 14, 32), "float32"),) * 2
    parts = [
        "n0=x",
        Node("f0", Kind.FUNCTION, inputs=("n0",), outputs=types[:1], body=first, scope="m.a"),
        Node("f1", Kind.FUNCTION, inputs=("f0",), outputs=types, body=second, scope="m.b"),
        "n3 [0] f1; n4 [1] f1; n5#d :16; n6 add n4 n5; n7 () n3 n6",
    ]
    return graph_of(parts, of="1x14x64", name="fused")


SCALED = """@T.prim_func
def scaled(
    x: T.Buffer((T.int64(1), T.int64(14), T.int64(64)), "float32"),
    y: T.Buffer((T.int64(1), T.int64(14)), "float32")
):
    # with T.sblock("root"):
    for i, j, k in T.grid(T.int64(1), T.int64(14), T.int64(64)):
        with T.sblock("total"):
            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
            T.reads(x[v_i, v_j, v_k])
            T.writes(y[v_i, v_j])
            y[v_i, v_j] = y[v_i, v_j] + x[v_i, v_j, v_k]
    for block in T.thread_binding(T.int64(7), thread="blockIdx.x"):
        for lane in T.vectorized(2):
            with T.sblock("half"):
                y[0, block * 2 + lane] = y[0, block * 2 + lane] * T.float32(0.5)
"""


def kernels() -> Graph:
    """Two calls of kernels, and an operator with the name of one."""
    calls = "first scaled n0 call='call_tir'; second other first writes=[1]; operator scaled second"
    texts = {"scaled": SCALED, "other": "@T.prim_func\ndef other():\n    pass\n"}
    return replace(graph_of(f"n0=x; {calls}", of="1x14x64", name="kernels"), kernels=texts)


GRAPHS = {
    "kernels": kernels,
    "fused": fused,
    "layer": transformer,
    "layers": lambda: transformer(12),
    "joint": joint,
    "joint12": lambda: joint(12),
    "big": lambda: transformer(100),
    "huge": lambda: transformer(350),
    "vast": lambda: transformer(1700),
    "random": lambda: random_graph(1),
    "empty": lambda: Graph("empty", "relay", (), (), ()),
}


def drawn_boxes(tree, opened) -> int:
    """How many boxes are drawn of a `GroupTree` with these groups open: nodes, closed groups."""

    def shown(group: str) -> bool:
        return set(tree.path(group)) <= set(opened)

    closed = (g for g in tree.groups if g not in opened and shown(tree.groups[g].parent))
    return sum(map(shown, tree.group_of.values())) + len(list(closed))
