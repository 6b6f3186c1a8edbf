"""Graphs made by hand for tests: small ones, a transformer's layers, random ones."""

import random
import re
from ast import literal_eval
from collections.abc import Sequence

from relascope.core.graph import Graph, Kind, Literal, Node, Role, TensorType

_HEAD = re.compile(r"([^=!#]+)([=!#]?)(.*)")


def _type(word: str) -> TensorType:
    sizes, _, dtype = word.partition("/")
    return TensorType(
        tuple(int(s) if s.isdigit() else s for s in sizes.split("x") if s), dtype or "float32"
    )


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


class Builder:
    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: list[str] = []
        self.scope = ""
        self.role = Role.NONE

    def add(self, kind: Kind, shape=(1, 14, 64), inputs=(), **fields) -> str:
        node_id = fields.pop("id", None) or f"n{len(self.nodes)}"
        fields.setdefault("scope", self.scope)
        fields.setdefault("role", self.role)
        outputs = (TensorType(tuple(shape), fields.pop("dtype", "float32")),)
        self.nodes.append(Node(node_id, kind, inputs=tuple(inputs), outputs=outputs, **fields))
        if kind in (Kind.INPUT, Kind.PARAMETER):
            self.inputs.append(node_id)
        return node_id

    def call(
        self, op: str, *inputs: str | Literal, shape=(1, 14, 64), id: str = "", **attrs
    ) -> str:
        return self.add(Kind.CALL, shape, inputs, op=op, attrs=attrs, id=id)

    def constant(self, value: float) -> str:
        attrs = {"digest": str(value), "value": str(value)}
        return self.add(Kind.CONSTANT, (), attrs=attrs)

    def parameter(self, name: str, shape) -> str:
        return self.add(Kind.PARAMETER, shape, name=name, role=Role.NONE)

    def graph(self, *outputs: str, **fields) -> Graph:
        graph = Graph(self.name, "relay", tuple(self.nodes), tuple(self.inputs), outputs, **fields)
        graph.validate()
        return graph


def _linear(b: Builder, x: str, scope: str, wide: int = 64, into: int = 64) -> str:
    before, b.scope = b.scope, scope
    weight = b.parameter(f"{scope}.weight", (wide, into))
    bias = b.parameter(f"{scope}.bias", (wide,))
    turned = b.call("transpose", weight, shape=(into, wide), axes=[1, 0])
    product = b.call("nn.batch_matmul", x, turned, shape=(1, 14, wide), transpose_b=False)
    out = b.call("add", product, bias, shape=(1, 14, wide))
    b.scope = before
    return out


def _norm(b: Builder, x: str, scope: str) -> str:
    before, b.scope = b.scope, scope
    gamma, beta = (b.parameter(f"{scope}.{n}", (64,)) for n in ("weight", "bias"))
    out = b.call("nn.layer_norm", x, gamma, beta, axis=-1, epsilon=1e-12)
    b.scope = before
    return out


def _layer(b: Builder, x: str, mask: str, prefix: str) -> str:
    heads = {}
    for name in ("query", "key", "value"):
        scope = f"{prefix}attention.self.{name}"
        out = _linear(b, x, scope)
        b.scope = f"{prefix}attention.self"
        split = b.call("reshape", out, shape=(1, 14, 4, 16), newshape=[1, 14, 4, 16])
        heads[name] = b.call("transpose", split, shape=(1, 4, 14, 16), axes=[0, 2, 1, 3])
    key = b.call("transpose", heads["key"], shape=(1, 4, 16, 14), axes=[0, 1, 3, 2])
    scores = b.call("nn.batch_matmul", heads["query"], key, shape=(1, 4, 14, 14))
    scaled = b.call("divide", scores, b.constant(4.0), shape=(1, 4, 14, 14))
    masked = b.call("add", scaled, mask, shape=(1, 4, 14, 14))
    soft = b.call("nn.softmax", masked, shape=(1, 4, 14, 14), axis=-1)
    mixed = b.call("nn.batch_matmul", soft, heads["value"], shape=(1, 4, 14, 16))
    back = b.call("transpose", mixed, shape=(1, 14, 4, 16), axes=[0, 2, 1, 3])
    joined = b.call("reshape", back, newshape=[1, 14, 64])
    dense = _linear(b, joined, f"{prefix}attention.output.dense")
    b.scope = f"{prefix}attention.output"
    middle = _norm(b, b.call("add", dense, x), f"{prefix}attention.output.LayerNorm")
    wide = _linear(b, middle, f"{prefix}intermediate.dense", 256, 64)
    b.scope = f"{prefix}intermediate.act"
    shape = (1, 14, 256)
    inner = b.call("erf", b.call("multiply", wide, b.constant(0.7071), shape=shape), shape=shape)
    half = b.call("add", inner, b.constant(1.0), shape=shape)
    gelu = b.call(
        "multiply", b.call("multiply", wide, half, shape=shape), b.constant(0.5), shape=shape
    )
    out = _linear(b, gelu, f"{prefix}output.dense", 64, 256)
    b.scope = f"{prefix}output"
    out = _norm(b, b.call("add", out, middle), f"{prefix}output.LayerNorm")
    b.scope = ""
    return out


def transformer(layers: int = 1) -> Graph:
    """BERT's encoder with made-up sizes: about 60 nodes a layer, module paths as PyTorch's."""
    b = Builder()
    x = b.add(Kind.INPUT, name="hidden_states")
    mask = b.add(Kind.INPUT, (1, 1, 1, 14), name="attention_mask")
    for i in range(layers):
        x = _layer(b, x, mask, "" if layers == 1 else f"encoder.layer.{i}.")
    return b.graph(x)


def joint(layers: int = 1) -> Graph:
    """A transformer with a backward of about twice its calls, which reads forward values."""
    forward = transformer(layers)
    b = Builder("joint")
    b.inputs = list(forward.inputs)
    calls = [n for n in forward.nodes if n.kind is Kind.CALL]
    saved = {n.id for n in calls if n.op not in ("transpose", "reshape")}
    for node in forward.nodes:
        role = Role.CAPTURED if node.id in saved else Role.FORWARD
        fields = {f: getattr(node, f) for f in ("op", "name", "attrs", "inputs", "scope")}
        b.nodes.append(Node(node.id, node.kind, outputs=node.outputs, role=role, **fields))
    b.role = Role.BACKWARD
    grad = b.add(Kind.INPUT, name="grad_out", id="grad_out", role=Role.NONE)
    for node in reversed(calls):
        b.scope = node.scope
        shape = node.outputs[0].shape
        near = node.id if node.id in saved else node.edges[0]
        grad = b.call("multiply", grad, near, shape=shape, id=f"g1.{node.id}")
        grad = b.call("sum", grad, shape=shape, id=f"g2.{node.id}")
    return b.graph(*forward.outputs, grad, forward_outputs=1)


def random_graph(seed: int, nodes: int = 120, scopes: int = 6) -> Graph:
    """Any connected or unconnected graph: groups may well feed and be fed by one node."""
    draw = random.Random(seed)
    paths = [""] + [
        ".".join(f"m{draw.randrange(3)}" for _ in range(draw.randint(1, 3))) for _ in range(scopes)
    ]
    b = Builder(f"random{seed}")
    for i in range(nodes):
        b.scope = draw.choice(paths)
        reach = (
            [b.nodes[draw.randrange(max(0, i - 30), i)].id for _ in range(draw.randint(0, 3))]
            if i
            else []
        )
        if reach:
            b.call(draw.choice(["add", "nn.dense", "reshape", "nn.conv2d"]), *reach)
        else:
            b.add(Kind.INPUT, name=f"x{i}")
    return b.graph(b.nodes[-1].id)


def chain(nodes: int) -> Graph:
    b = Builder("chain")
    last = b.add(Kind.INPUT, name="x")
    for _ in range(nodes - 1):
        last = b.call("nn.relu", last)
    return b.graph(last)


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
    b = Builder("kernels")
    first = b.call("scaled", b.add(Kind.INPUT, name="x"), id="first", call="call_tir")
    second = b.call("other", first, id="second", writes=[1])
    texts = {"scaled": SCALED, "other": "@T.prim_func\ndef other():\n    pass\n"}
    return b.graph(b.call("scaled", second, id="operator"), kernels=texts)


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
