"""The graph as a file for other programs: DOT text and JSON text."""

import json

import graphviz

from relascope.core.graph import Graph, Node, Role
from relascope.core.visible import visible
from relascope.viz.drawing import labels, palette
from relascope.viz.drawing.modules import fold_constants, module_groups


def to_json_text(graph: Graph) -> str:
    """The graph as JSON text, one document, as `Graph.from_json` reads it back."""
    return visible(json.dumps(graph.to_json(), ensure_ascii=False))


def to_dot(
    graph: Graph, fewer_than: int = 10, theme: palette.Theme = "light", shapes: bool = False
) -> str:
    """The graph as DOT text, with the viewer's colours and one cluster for each module. No `dot`
    program is needed to make it. Constants with fewer elements than `fewer_than` are written into
    their readers; with `shapes`, edges carry the types of their values."""
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
    # Names of our own: ids may hold what DOT gives a meaning, such as a colon for a port.
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
    for group in reversed(tree.groups.values()):  # what is in one stands behind it
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
        k: graphviz.nohtml(graphviz.escape(visible(v)).replace("\n", "\\n"))  # "<b>" is no HTML
        if "\\" in v or visible(v) != v or k in ("label", "tooltip")
        else v
        for k, v in attributes.items()
    }
