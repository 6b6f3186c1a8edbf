"""The neutral graph of a function in a recorded module, drawn by the engines' code.

Needs only a TVM and numpy."""

from typing import Any

from relascope.core.graph import NodeOrigin

_LONGEST = 32  # characters of a constant's value; longer ones are dropped


class _Spans(dict[str, NodeOrigin]):
    """A node's origin by the name of its span: nothing more is known about other imports."""

    def get(self, name: str, default: Any = None) -> Any:
        return NodeOrigin(source=str(name))


Digests = dict[Any, tuple[Any, str]]


def graph_of(mod: Any, name: str, digests: Digests) -> dict[str, Any]:
    """The JSON of the graph of a module's function. Raises whatever an untested TVM raises.
    `digests`: see `passes.program.Program`."""
    import tvm

    relay = getattr(tvm, "relay", None)
    if relay is not None and isinstance(mod[name], relay.Function):
        from relascope.engine.relay.draw.to_graph import to_graph
        from relascope.passes.relay.ir.program import RelayProgram

        program = RelayProgram(mod, {}, (), 0, provenance=_Spans(), digests=digests)
        return _without_values(to_graph(program, name)[0].to_json())
    from relascope.engine.relax.draw import to_graph as relax
    from relascope.passes.relax.ir.program import RelaxProgram

    drawn, _ = relax.to_graph(RelaxProgram(mod, {}, (), 0, digests=digests), name, False)
    return _without_values(drawn.to_json())


def _without_values(graph: dict[str, Any]) -> dict[str, Any]:
    """A graph's JSON with the values of scalars, but of no other constants."""
    for node in graph["nodes"]:
        if node["kind"] == "constant" and len(node.get("attrs", {}).get("value", "")) > _LONGEST:
            del node["attrs"]["value"]
        if "body" in node:
            _without_values(node["body"])
    return graph
