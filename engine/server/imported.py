"""What an import did beside converting: operators changed, dropped, made argument or result."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from relascope.core.graph import Graph, Kind
from relascope.engine.protocol.results import ImportChange
from relascope.engine.pytorch.in_place import changes_in_place
from relascope.engine.pytorch.model import Model
from relascope.engine.server.backend import Backend, Program

_MOST = 200  # modules that are listed


def changes(
    backend: Backend, model: Model, program: Program, graph: Graph, exprs: dict[str, Any]
) -> tuple[ImportChange, ...]:
    """What an import did, the kinds in the order of `ImportChange`."""
    nodes: dict[int, list[str]] = defaultdict(list)
    for ident, expr in exprs.items():
        ordinal = backend.ordinal(program, expr)
        if ordinal is not None and graph.by_id[ident].kind is Kind.CALL:
            nodes[ordinal if ordinal >= 0 else -1 - ordinal].append(ident)
    placed = {(n.scope, n.source) for n in graph if n.source}
    stands: dict[str, tuple[str, ...]] = {}  # by a value of the trace, the nodes that stand for it
    groups: dict[tuple[str, str, str], list[tuple[Any, tuple[str, ...]]]] = defaultdict(list)
    for node in model.flat.graph.nodes():
        origin = model.flat.origin(node)
        own = tuple(nodes.get(origin.ordinal, ()))
        stands.update({v.debugName(): own[-1:] for v in node.outputs()})
        if origin.ordinal < 0 or not node.kind().startswith("aten::"):
            continue
        kind = "changed"
        if changes_in_place(origin.operator):
            what = "Changes a tensor in place in PyTorch; a pure operator here"
        elif origin.ordinal in model.composed:
            what = "Written with other operators: TVM's importer does not support this use of it"
        elif own or (origin.scope, origin.operator) in placed:
            continue
        else:
            kind, what = "dropped", "Computed at the import: it depends only on shapes"
            alike = (v for v in node.inputs() if node.outputsSize() == 1)
            if like := next((v for v in alike if _alike(v, node.output())), None):
                what = "Left out: its result is its argument"
                own = stands[node.output().debugName()] = stands.get(like.debugName(), ())
        groups[kind, what, origin.operator].append((origin, own))
    found = []
    for (kind, what, operator), members in groups.items():
        ids = tuple(dict.fromkeys(i for _, own in members for i in own))
        titles = Counter(graph.by_id[i].title for i in ids if kind == "changed")
        where = tuple(dict.fromkeys(o.scope for o, _ in members))[:_MOST]
        count = sum(not o.further for o, _ in members)
        became = dict(titles.most_common())
        found.append(ImportChange(kind, what, operator, count, ids, where, became))
    found += _of_tensors(model, program, graph)
    order = ImportChange.KINDS.index
    return tuple(sorted(found, key=lambda c: (order(c.kind), c.what, -c.count)))


def _of_tensors(model: Model, program: Program, graph: Graph) -> Iterator[ImportChange]:
    named = {n.name: n.id for n in graph if n.name}
    results = graph.outputs[program.outputs - len(program.updates) : program.outputs]
    parameters = [n for n in program.params if n not in program.buffers]
    drawn = [m.name for m in program.masks]
    for kind, what, names, at in (
        ("dropped", "A parameter that nothing reads", model.unread, ()),
        ("externalised", "A parameter, now an argument", parameters, ()),
        ("externalised", "A buffer, now an argument", program.buffers, ()),
        ("externalised", "Random numbers, now an argument", drawn, ()),
        ("externalised", "A buffer whose new value is a result", program.updates, results),
    ):
        if names:
            ids = tuple(at) or tuple(named[n] for n in names if n in named)
            where = tuple(dict.fromkeys(n.rpartition(".")[0] for n in names))[:_MOST]
            label = names[0] if len(names) == 1 else f"{names[0]}, …"
            yield ImportChange(kind, what, label, len(names), ids, where)


def _alike(one: Any, other: Any) -> bool:
    """Whether two values of a trace are tensors of one type."""
    kinds = [v.type() for v in (one, other)]
    if any(k.kind() != "TensorType" for k in kinds):
        return False
    return len({(str(k.sizes()), str(k.dtype())) for k in kinds}) == 1
