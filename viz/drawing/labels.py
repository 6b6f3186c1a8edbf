"""The short texts in and beside nodes."""

from collections.abc import Mapping, Sequence

from relascope.core.graph import Kind, Literal, Node, TensorType

# Values of attributes that are empty, neutral or internal to the compiler.
_SILENT = {"", "None", "null", "[]", "()", "{}", "0", "0.0", "False", "false"}
_SILENT |= {"float32", "void", "same"}


def shorten(text: str, longest: int = 30) -> str:
    """A text, with an ellipsis if it is longer than `longest` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def types_text(outputs: Sequence[TensorType], longest: int = 48) -> str:
    """The types of a node's results, for an edge or a second line."""
    if not outputs:
        return ""
    if len(outputs) > 3:
        return f"{len(outputs)} tensors"
    return shorten(", ".join(map(str, outputs)), longest)


def title(node: Node) -> str:
    """The first line: a call's operator, an input's name, a fused function's operators in order."""
    if node.kind is Kind.FUNCTION and node.body is not None and not node.op:
        calls = dict.fromkeys(n.op.rsplit(".", 1)[-1] for n in node.body.nodes if n.op)
        return shorten(" + ".join(calls) or "function")
    if node.kind in (Kind.INPUT, Kind.PARAMETER):
        return shorten(".".join(node.name.split(".")[-2:]))  # the module around it has the rest
    return shorten(node.title)


def subtitle(node: Node) -> str:
    """The second line: literals among the arguments, attributes, or an input's type; or ""."""
    if node.kind in (Kind.INPUT, Kind.PARAMETER, Kind.CONSTANT):
        if node.kind is Kind.CONSTANT and "value" in node.attrs:
            return shorten(str(node.attrs["value"]))
        return types_text(node.outputs, 34)
    if node.kind is Kind.FUNCTION and node.body is not None:
        count = len(node.body) - len(node.body.inputs)
        return f"{count} node{'s' * (count != 1)} fused"
    if any(isinstance(i, Literal) for i in node.inputs):
        shown = ["·" if isinstance(i, str) else shorten(i.text, 12) for i in node.inputs]
        return shorten("(" + ", ".join(shown) + ")")
    return shorten(attributes(node.attrs)) if node.kind is Kind.CALL else ""


def attributes(attrs: Mapping[str, object]) -> str:
    """The informative attributes, in the operator's order: "axes [0, 2, 1, 3]"."""
    shown = ((n, str(value)) for n, value in attrs.items() if "dtype" not in n)
    return ", ".join(f"{name} {text}" for name, text in shown if text not in _SILENT)
