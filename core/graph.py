"""The neutral graph of a program, from any IR.

A `Graph` is plain data: an engine in a child process builds it, and code that knows no compiler
draws, compares, cuts and exports it. This module imports nothing else of the project, and never
recurses over edges, so a graph may be one chain of 100,000 nodes."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar

JsonValue = Any  # str, int, float, bool, None, and lists and dicts of them
_Found = TypeVar("_Found", bound=Hashable)
_Next = Callable[[_Found], Iterable[_Found]]

_ITEM_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}


OWN_KERNELS = ("call_tir", "call_tir_inplace")
"""Values of a node's attribute "call" with which it calls a kernel of the program."""


GRADIENT_OF = "gradient of "
"""Before a framework operator, what differentiates it."""


class NodeOrigin(NamedTuple):
    """Where a node comes from: the module's path, the framework's operator, and the line of the
    model's own source, "model.py:12", then ": " and its text, if known. "" is unknown."""

    scope: str = ""
    source: str = ""
    line: str = ""

    @property
    def place(self) -> str:
        """Operator and module: "aten::linear in encoder.0"."""
        return f"{self.source} in {self.scope}" if self.scope else f"{self.source} at the top"

    @property
    def where(self) -> str:
        """The same with the line, for an error: "aten::linear in encoder.0, model.py:12"."""
        return f"{self.place}, {line_number(self.line)}" if self.line else self.place

    @property
    def of_gradient(self) -> "NodeOrigin":
        return self._replace(source=GRADIENT_OF + self.source if self.source else "")

    def named(self, operator: str) -> str:
        """An operator as an error names it: "nn.relu from aten::relu in encoder, model.py:12"."""
        parts = operator, self.source and f"from {self.source}", self.scope and f"in {self.scope}"
        return ", ".join(filter(None, (" ".join(filter(None, parts)), line_number(self.line))))


def line_number(line: str) -> str:
    """A line of source without its text: "model.py:12"."""
    return line.partition(": ")[0]


class _Word(str, Enum):
    """Words that a pickle cannot change."""

    def __setstate__(self, state: object) -> None:
        raise TypeError(f"{self} has no state")


class Kind(_Word):
    """The kind of a node."""

    INPUT = "input"
    PARAMETER = "parameter"
    CONSTANT = "constant"
    CALL = "call"
    TUPLE = "tuple"
    ITEM = "item"  # one field of a tuple; attrs["index"] says which
    FUNCTION = "function"  # a fused group: `body` holds the graph inside
    LET = "let"


class Role(_Word):
    """The role of a node in a joint forward and backward graph."""

    NONE = "none"
    FORWARD = "forward"
    CAPTURED = "captured"  # computed by the forward, saved for the backward
    BACKWARD = "backward"


@lru_cache(maxsize=4096)
def _elements(shape: tuple[int | str, ...]) -> int | None:
    known = [d for d in shape if isinstance(d, int)]
    return math.prod(known) if len(known) == len(shape) else None


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of one tensor. An unknown dimension is a string such as `"n"`."""

    shape: tuple[int | str, ...]
    dtype: str

    @property
    def elements(self) -> int | None:
        """The number of elements; None if a dimension is unknown."""
        return _elements(self.shape)

    @property
    def bytes(self) -> int | None:
        """Size in bytes; None if a dimension or the dtype's size is unknown."""
        size, elements = _ITEM_BYTES.get(self.dtype), self.elements
        return None if size is None or elements is None else size * elements

    def fits(self, other: "TensorType") -> bool:
        """Whether both have the same dtype and shape; an unknown dimension fits any other."""
        if self == other:
            return True
        sizes = zip(self.shape, other.shape, strict=False)
        same = all(a == b or isinstance(a, str) or isinstance(b, str) for a, b in sizes)
        return same and len(self.shape) == len(other.shape) and self.dtype == other.dtype

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Literal:
    """A small constant written into its consumer in place of an edge."""

    text: str


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a program.

    Args:
        id: the same string for the same computation from step to step.
        op: the operator of a call ("nn.dense"); for a function, its fused operators; else "".
        name: the variable's name of an input or parameter; else "".
        attrs: the operator's attributes as JSON values, in the operator's own order. A constant
            has "digest" (a hash of its bytes) and, if it is small, "value" (its text).
        inputs: ids of the nodes it reads, in argument order, or a Literal for a folded constant.
        outputs: one type per result; a tuple has one per field.
        scope: path of the PyTorch module it belongs to ("encoder.layer.0.output"), "" at the top.
        source: the framework's operator it came from ("aten::linear"), "" where unknown.
        line: of the model's source, as in `NodeOrigin`."""

    id: str
    kind: Kind
    op: str = ""
    name: str = ""
    attrs: Mapping[str, JsonValue] = field(default_factory=dict)
    inputs: tuple[str | Literal, ...] = ()
    outputs: tuple[TensorType, ...] = ()
    scope: str = ""
    source: str = ""
    line: str = ""
    role: Role = Role.NONE
    body: "Graph | None" = None

    @property
    def origin(self) -> NodeOrigin:
        return NodeOrigin(self.scope, self.source, self.line)

    @property
    def edges(self) -> tuple[str, ...]:
        """Ids of the nodes it reads, without literals, in argument order, repeats kept."""
        return tuple([i for i in self.inputs if isinstance(i, str)])

    @property
    def bytes(self) -> int | None:
        """Bytes of all its results together; None if one is unknown."""
        if len(self.outputs) == 1:
            return self.outputs[0].bytes
        sizes = [t.bytes for t in self.outputs]
        return None if any(s is None for s in sizes) else sum(s for s in sizes if s is not None)

    @property
    def is_tensor(self) -> bool:
        """Whether its value is one tensor, not a tuple of them."""
        return self.kind is not Kind.TUPLE and len(self.outputs) == 1

    @property
    def kernel(self) -> str:
        """The name of the program's own kernel that it calls; "" if none."""
        own = self.attrs.get("call") in OWN_KERNELS or "writes" in self.attrs
        return self.op if own else ""

    @property
    def title(self) -> str:
        """Its short name in a list or an error."""
        if self.kind in (Kind.INPUT, Kind.PARAMETER):
            return self.name
        if self.kind is Kind.ITEM:
            return f"item {self.attrs.get('index', '?')}"
        return self.op or self.kind.value


@dataclass(frozen=True)
class Graph:
    """A program: nodes in an order with producers before their readers.

    Args:
        name: the function's name ("main").
        ir: "relay" or "relax".
        nodes: all of them, producers first.
        inputs: ids of the inputs and parameters, in the order of the function's arguments.
        outputs: ids of the results, flattened, in order; an id may occur twice.
        forward_outputs: in a joint graph, how many of `outputs` are the forward's own; the rest
            are gradients. None for other graphs.
        kernels: the text of each kernel that a node calls, by the kernel's name."""

    name: str
    ir: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    forward_outputs: int | None = None
    kernels: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @cached_property
    def by_id(self) -> dict[str, Node]:
        return {n.id: n for n in self.nodes}

    @cached_property
    def edges(self) -> dict[str, tuple[str, ...]]:
        """For every node the ids of the nodes it reads, each once, in argument order."""
        return {n.id: tuple(dict.fromkeys(n.edges)) for n in self.nodes}

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """For every node the ids of the nodes that read it, each once, in graph order."""
        readers: dict[str, list[str]] = {n.id: [] for n in self.nodes}
        for node_id, edges in self.edges.items():
            for source in edges:
                readers[source].append(node_id)
        return {k: tuple(v) for k, v in readers.items()}

    @property
    def edge_count(self) -> int:
        """The number of edges: one for every argument that is a node."""
        return sum(len(n.edges) for n in self.nodes)

    @cached_property
    def operators(self) -> dict[str, int]:
        """How often each operator is called, the most frequent first, fused bodies included."""
        counts = Counter(n.op for g in self.with_bodies() for n in g if n.kind is Kind.CALL)
        return dict(sorted(counts.items(), key=lambda kv: (-kv[1], kv[0])))

    def ancestors(self, ids: Iterable[str]) -> set[str]:
        """The given nodes, and all nodes that they are computed from."""
        return set(reached(ids, self.edges.__getitem__))

    def with_bodies(self) -> Iterator["Graph"]:
        """The graph and the bodies of its functions, nested ones included."""
        todo = [self]
        while todo:
            graph = todo.pop()
            yield graph
            todo += (n.body for n in graph if n.body is not None)

    def with_nodes(self, nodes: Iterable[Node]) -> "Graph":
        return replace(self, nodes=tuple(nodes))

    def with_roles(self, roles: Mapping[str, Role]) -> "Graph":
        """The same graph, each node with its role in `roles`, or none."""
        return self.with_nodes(replace(n, role=roles.get(n.id, Role.NONE)) for n in self.nodes)

    def renamed(
        self, of: Callable[[str], str], more: Callable[[Node], Mapping[str, Any]] = lambda node: {}
    ) -> "Graph":
        """The same graph with its ids replaced by `of`, and `more` fields of its nodes."""
        nodes = []
        for node in self.nodes:
            read = tuple(of(i) if isinstance(i, str) else i for i in node.inputs)
            nodes.append(replace(node, id=of(node.id), inputs=read, **more(node)))
        inputs, outputs = (tuple(map(of, ids)) for ids in (self.inputs, self.outputs))
        return replace(self, nodes=tuple(nodes), inputs=inputs, outputs=outputs)

    def validate(self) -> None:
        """Check the invariants of this class. Raises ValueError, which names the node, if an id
        occurs twice, an input or output is missing, or a node is read before it is computed."""
        seen: set[str] = set()
        for node in self.nodes:
            for source in node.edges:
                if source not in seen:
                    raise ValueError(f"node {node.id} ({node.title}) reads {source} before it")
            if node.id in seen:
                raise ValueError(f"two nodes have the id {node.id}")
            seen.add(node.id)
            if node.body is not None:
                node.body.validate()
        for end in (*self.inputs, *self.outputs):
            if end not in seen:
                raise ValueError(f"graph {self.name} names {end}, which is not among its nodes")

    def to_json(self) -> dict[str, JsonValue]:
        """The graph as plain JSON values; `from_json` reads it back equal."""
        return {
            "name": self.name,
            "ir": self.ir,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "forward_outputs": self.forward_outputs,
            "nodes": [_node_to_json(n) for n in self.nodes],
            **({"kernels": dict(self.kernels)} if self.kernels else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, JsonValue]) -> "Graph":
        """Read what `to_json` wrote. Raises ValueError that names a missing or malformed field."""
        try:
            graph = Graph(
                name=data["name"],
                ir=data["ir"],
                nodes=tuple(_node_from_json(n) for n in data["nodes"]),
                inputs=tuple(data["inputs"]),
                outputs=tuple(data["outputs"]),
                forward_outputs=data.get("forward_outputs"),
                kernels={str(k): str(v) for k, v in data.get("kernels", {}).items()},
            )
        except KeyError as missing:
            raise ValueError(f"the graph's JSON lacks {missing}") from missing
        except (TypeError, AttributeError) as wrong:
            raise ValueError(f"the graph's JSON has another form: {wrong}") from wrong
        graph.validate()
        return graph


def reached(start: Iterable[_Found], beyond: _Next[_Found]) -> dict[_Found, None]:
    """Everything reached from `start` by `beyond`, itself included, in depth-first order."""
    found: dict[_Found, None] = {}
    todo = list(start)
    while todo:
        current = todo.pop()
        if current not in found:
            found[current] = None
            todo.extend(beyond(current))
    return found


def read_first(start: Iterable[_Found], read: _Next[_Found]) -> dict[_Found, None]:
    """Everything reached from `start` by `read`, itself included, each after what it reads."""
    found: dict[_Found, None] = {}
    seen: set[_Found] = set()
    todo = [(one, False) for one in reversed([*start])]
    while todo:
        current, ready = todo.pop()
        if ready:
            found[current] = None
        elif current not in seen:
            seen.add(current)
            todo += [(current, True), *((one, False) for one in reversed([*read(current)]))]
    return found


_TEXTS = ("op", "name", "scope", "source", "line")  # fields of a node that JSON lacks if empty


def _node_to_json(node: Node) -> dict[str, JsonValue]:
    data: dict[str, JsonValue] = {"id": node.id, "kind": node.kind.value}
    for key in _TEXTS:
        if getattr(node, key):
            data[key] = getattr(node, key)
    if node.attrs:
        data["attrs"] = dict(node.attrs)
    if node.inputs:
        data["inputs"] = [i if isinstance(i, str) else {"literal": i.text} for i in node.inputs]
    if node.outputs:
        data["outputs"] = [{"shape": list(t.shape), "dtype": t.dtype} for t in node.outputs]
    if node.role is not Role.NONE:
        data["role"] = node.role.value
    if node.body is not None:
        data["body"] = node.body.to_json()
    return data


def _node_from_json(data: Mapping[str, JsonValue]) -> Node:
    inputs = data.get("inputs", ())
    return Node(
        id=data["id"],
        kind=Kind(data["kind"]),
        attrs=dict(data.get("attrs", {})),
        inputs=tuple(i if isinstance(i, str) else Literal(i["literal"]) for i in inputs),
        outputs=tuple(TensorType(tuple(t["shape"]), t["dtype"]) for t in data.get("outputs", ())),
        role=Role(data.get("role", "none")),
        body=Graph.from_json(data["body"]) if data.get("body") else None,
        **{key: data[key] for key in _TEXTS if key in data},
    )
