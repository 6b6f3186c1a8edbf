"""Building a `Graph` node by node, for any IR."""

import hashlib
import json
from collections.abc import Callable, Mapping
from math import isfinite, prod
from typing import Any

from relascope.core.graph import Graph, JsonValue, Kind, Node, NodeOrigin, TensorType

SMALL = 1000
"""Constants with fewer elements carry their values as text."""


class GraphBuilder:
    """The nodes of one function, in the order in which they are added: producers first.
    `expressions` has the IR's expression of each node, by its id."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.expressions: dict[str, Any] = {}
        self.copies: dict[str, int] = {}

    def add_node(
        self,
        expr: Any,
        identity: str,
        kind: Kind,
        outputs: tuple[TensorType, ...],
        origin: NodeOrigin = NodeOrigin(),  # noqa: B008 [immutable]
        op: str = "",
        name: str = "",
        attrs: Mapping[str, JsonValue] | None = None,
        inputs: tuple[str, ...] = (),
        body: Graph | None = None,
    ) -> str:
        """Add one node. Its id is a hash of `identity`, a text that says what it computes; equal
        nodes get "#2", "#3" and so on. Nodes of a function's body get ids within its own."""
        ident = hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()
        copy = self.copies[ident] = self.copies.get(ident, 0) + 1
        if copy > 1:
            ident = f"{ident}#{copy}"
        if body is not None:
            body = body.renamed(lambda inner: f"{ident}/{inner}")
        about = op, name, attrs or {}, inputs, outputs
        self.nodes.append(Node(ident, kind, *about, *origin, body=body))
        self.expressions[ident] = expr
        return ident

    def finish(
        self,
        name: str,
        ir: str,
        inputs: tuple[str, ...],
        result: str,
        forward_outputs: int | None = None,
    ) -> Graph:
        """The graph; a result that is a tuple is flattened."""
        outputs, hidden = self._results(result)
        nodes = tuple(n for n in self.nodes if n.id not in hidden)
        for ident in hidden:
            self.expressions.pop(ident, None)
        return Graph(name, ir, nodes, inputs, outputs, forward_outputs)

    def _results(self, result: str) -> tuple[tuple[str, ...], set[str]]:
        """Ids of the results, tuples flattened, and ids of tuples that only hold the results."""
        by_id = {n.id: n for n in self.nodes}
        read = {s for n in self.nodes if n.kind is not Kind.TUPLE for s in n.edges}
        outputs: list[str] = []
        hidden: set[str] = set()
        todo = [result]
        while todo:
            ident = todo.pop()
            node = by_id[ident]
            if node.kind is Kind.TUPLE:
                if ident not in read:
                    hidden.add(ident)
                todo.extend(reversed(node.edges))
            else:
                outputs.append(ident)
        # A hidden tuple may still be read by a tuple that stays.
        tuples = (n for n in self.nodes if n.kind is Kind.TUPLE and n.id not in hidden)
        kept = {s for n in tuples for s in n.edges}
        while lost := hidden & kept:
            hidden -= lost
            kept |= {s for i in lost for s in by_id[i].edges}
        return tuple(outputs), hidden


Place = tuple[int, str, tuple[int, ...]]
"""An array's address, dtype and shape."""


def place_of(array: Any) -> Place:
    """Where an array of any TVM is; `numpy()` may copy it, and free the copy at once."""
    shape = tuple(map(int, array.shape))
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr()), str(array.dtype), shape
    if hasattr(array, "handle"):
        content = array.handle.contents
        return int(content.data or 0) + int(content.byte_offset), str(array.dtype), shape
    import numpy as np

    return int(np.from_dlpack(array).ctypes.data), str(array.dtype), shape


def digest_of(array: Any) -> str:
    """A hash of an array's bytes."""
    return hashlib.blake2b(array.numpy().tobytes(), digest_size=6).hexdigest()


class Constants:
    """A digest of each constant of a program, and which are parameters. `params` are arrays by a
    parameter's name; a bound parameter keeps its memory, whose address identifies it. `digests` are
    known ones by an array's place, each with the array, so that no other array can take its place;
    more are added."""

    def __init__(
        self,
        params: Mapping[str, Any],
        digests: dict[Any, tuple[Any, str]],
        digest: Callable[[Any], str] = digest_of,
    ) -> None:
        self.bound = {place_of(v)[0]: n for n, v in params.items()}
        self.digests, self.digest = digests, digest

    def about(self, array: Any) -> tuple[str, dict[str, JsonValue], NodeOrigin]:
        """A constant's identity as a text, its attributes, and its origin."""
        place = address, dtype, shape = place_of(array)
        if place not in self.digests:
            self.digests[place] = array, self.digest(array)
        digest = self.digests[place][1]
        attrs: dict[str, JsonValue] = {"digest": digest, "dtype": dtype}
        if prod(shape) < SMALL:
            attrs["value"] = json.dumps(array.numpy().tolist())
        name = self.bound.get(address, "")
        if name:
            attrs["parameter"] = name
        origin = NodeOrigin(name.rpartition(".")[0])
        return f"constant {digest} {dtype} {list(shape)}", attrs, origin


def number(value: float) -> JsonValue:
    """A number as JSON; infinities and NaN, which JSON lacks, become texts."""
    return value if isfinite(value) else str(value)


def fused_name(body: Graph) -> str:
    """The name of a fused function: its operators in order."""
    return "+".join(n.op for n in body.nodes if n.kind in (Kind.CALL, Kind.FUNCTION)) or "function"


def other_name(expr: Any) -> str:
    """The name of an expression's node that is not an operator's: the name of its kind."""
    if hasattr(expr, "name_hint"):
        return f"@{expr.name_hint}"
    name = type(expr).__name__
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def body_origin(body: Graph) -> NodeOrigin:
    """The origin of a fused function: that of its result, or the last known one in it."""
    ends = [body.by_id[o] for o in body.outputs]
    for node in (*ends, *reversed(body.nodes)):
        if node.source:
            return node.origin
    return NodeOrigin()
