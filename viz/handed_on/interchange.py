"""A graph for other tools: JSON, DOT, and Model Explorer's JSON."""

import json
from typing import Any

import graphviz

from relascope.core.graph import Graph, Literal, Node, Role
from relascope.core.visible import visible
from relascope.viz.drawing import labels, palette
from relascope.viz.drawing.modules import GroupTree, fold_constants, module_groups


def to_model_explorer(graph: Graph, fewer_than: int = 10) -> str:
    """The graph as a JSON file for Model Explorer, with modules as layers, in the format of
    `model_explorer.graph_builder` in Google's ai-edge-model-explorer: one `GraphCollection`, whose
    graphs' nodes have a namespace, attributes and incoming edges."""
    graph = fold_constants(graph, fewer_than)
    tree = module_groups(graph)
    nodes = [_explored(node, graph, tree) for node in graph]
    collection = {"label": graph.name, "graphs": [{"id": graph.name, "nodes": nodes}]}
    return visible(json.dumps(collection, ensure_ascii=False))


def _explored(node: Node, graph: Graph, tree: GroupTree) -> dict[str, Any]:
    style = palette.STYLES["light"][palette.style_key(node)]
    role = "" if node.role is Role.NONE else node.role.value
    facts = {"kind": node.kind.value, "module": node.scope, "source": node.source}
    facts |= {"line": node.line, "role": role} | {k: str(v) for k, v in node.attrs.items()}
    literals = [f"{at}: {i.text}" for at, i in enumerate(node.inputs) if isinstance(i, Literal)]
    facts["literal arguments"] = ", ".join(literals)
    return {
        "id": node.id,
        "label": labels.title(node),
        # A slash in a module's name would begin another layer.
        "namespace": "/".join(
            tree.groups[g].label.replace("/", "∕") for g in tree.path(tree.group_of[node.id])
        ),
        "attrs": _attrs(**facts),
        "incomingEdges": [
            {"sourceNodeId": source, "sourceNodeOutputId": "0", "targetNodeInputId": str(at)}
            for at, source in enumerate(node.inputs)
            if isinstance(source, str) and source in graph.by_id
        ],
        "outputsMetadata": [
            {"id": str(at), "attrs": _attrs(shape="x".join(map(str, t.shape)), dtype=t.dtype)}
            for at, t in enumerate(node.outputs)
        ],
        "style": {"backgroundColor": style.fill, "borderColor": style.stroke},
    }


def _attrs(**facts: str) -> list[dict[str, str]]:
    return [{"key": k, "value": v[:2000]} for k, v in facts.items() if v]  # as its panel does


def to_json_text(graph: Graph, **more: Any) -> str:
    """The graph as one JSON document, which `Graph.from_json` reads, ignoring `more` fields."""
    return visible(json.dumps(graph.to_json() | more, ensure_ascii=False))


def to_dot(
    graph: Graph, fewer_than: int = 10, theme: palette.Theme = "light", shapes: bool = False
) -> str:
    """The graph as DOT text, made without a `dot` program, with the viewer's colours and one
    cluster for each module. Constants with fewer elements than `fewer_than` are written into their
    readers; with `shapes`, edges have the types of their values."""
    graph = fold_constants(graph, fewer_than)
    tree = module_groups(graph)
    surfaces = palette.SURFACES[theme]
    font = {"fontname": "Helvetica,Arial,sans-serif"}
    looks = {"bgcolor": surfaces["ground"], "fontcolor": surfaces["groupText"]}
    edges = {"color": surfaces["edge"], "fontcolor": surfaces["edgeText"]}
    dot = graphviz.Digraph(
        graphviz.nohtml(visible(graph.name, keep="")),
        graph_attr=font | {"rankdir": "TB", **looks, "fontsize": "12"},
        node_attr=font | {"fontsize": "11", "margin": "0.12,0.05"},
        edge_attr=font | edges | {"fontsize": "9", "arrowsize": "0.6"},
    )
    # Generated names: ids may contain DOT's special characters, such as a port's colon.
    names = {n.id: f"n{i}" for i, n in enumerate(graph.nodes)}
    pens = {"": dot}
    for number, group in enumerate(tree.groups.values()):
        pens[group.id] = graphviz.Digraph(f"cluster_{number}")
        pens[group.id].attr(
            "graph",
            **_escaped({"label": group.label}),
            labeljust="l",
            style="rounded,filled",
            fillcolor=surfaces["group"],
            color=surfaces["groupStroke"],
        )
    for node in graph.nodes:
        pens[tree.group_of[node.id]].node(names[node.id], **_escaped(_look(node, theme)))
    for group in reversed(tree.groups.values()):  # children first
        for child in group.groups:
            pens[group.id].subgraph(pens[child])
    for root in tree.roots:
        dot.subgraph(pens[root])
    by_id = graph.by_id
    for node in graph.nodes:
        for source in node.edges:
            maker = by_id[source]
            look = {"label": labels.types_text(maker.outputs)} if shapes else {}
            if node.role is Role.BACKWARD and maker.role in (Role.CAPTURED, Role.FORWARD):
                look["color"] = surfaces["crossing"]
            dot.edge(names[source], names[node.id], **_escaped(look))
    return str(dot.source)


def _look(node: Node, theme: palette.Theme) -> dict[str, str]:
    key = palette.style_key(node)
    style, second, title = palette.STYLES[theme][key], labels.subtitle(node), labels.title(node)
    if node.role is not Role.NONE:
        title = palette.signed(key, title)
    shape = palette.DOT_SHAPES[palette.SHAPES[node.kind]]
    return {
        **shape,
        **({"style": f"{shape['style']},dashed"} if style.dash else {}),
        **({"penwidth": "2.6"} if style.thick else {}),
        "label": f"{title}\n{second}" if second else title,
        "tooltip": f"{node.id} {node.scope}".strip(),
        "fillcolor": style.fill,
        "color": style.stroke,
        "fontcolor": style.text,
    }


def _escaped(attributes: dict[str, str]) -> dict[str, str]:
    return {
        k: graphviz.nohtml(graphviz.escape(visible(v)).replace("\n", "\\n"))  # "<b>" is not HTML
        if "\\" in v or visible(v) != v or k in ("label", "tooltip")
        else v
        for k, v in attributes.items()
    }
