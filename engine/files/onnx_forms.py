"""Forms of operators that TVM's ONNX importers compute wrongly, by ONNX's own tests.

If ONNX defines such an operator by others, it is replaced by them; `rewritten` replaces some more;
the rest is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from relascope.core.graph import TensorType


def inner_graphs(node: NodeProto) -> list[GraphProto]:
    return [
        graph
        for attribute in node.attribute
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)
    ]


def rename(graph: GraphProto | FunctionProto, names: Mapping[str, str]) -> None:
    """Replace names by others, in inner graphs too."""
    if isinstance(graph, GraphProto):
        for one in (*graph.initializer, *graph.input, *graph.output):
            one.name = names.get(one.name, one.name)
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(v, v) for v in values]
        for inner in inner_graphs(node):
            rename(inner, names)


def chosen_branch(node: NodeProto, condition: bool) -> tuple[list[NodeProto], list[TensorProto]]:
    """The nodes and tensors that replace an If with this `condition`: those of the branch that it
    takes. Their names get the If's first result as a prefix, because other branches may have the
    same names."""
    wanted = "then_branch" if condition else "else_branch"
    branch = GraphProto()
    branch.CopyFrom(next(a.g for a in node.attribute if a.name == wanted))
    free = {o for n in branch.node for o in n.output if o}
    own = {*free, *(t.name for t in branch.initializer)}
    names = {one: f"{node.output[0]}/{one}" for one in own}
    results = []
    for made, result in zip(branch.output, node.output, strict=True):
        if result and made.name in free:
            names[made.name] = result
            free.discard(made.name)
        elif result:  # a tensor, a value from outside, or one that is a result already
            results.append((made.name, result))
    rename(branch, names)
    copies = [helper.make_node("Identity", [names.get(a, a)], [b]) for a, b in results]
    return [*branch.node, *copies], list(branch.initializer)


@dataclass(frozen=True)
class Form:
    """A node, with the known types of tensors and values of small constants, by name, and the
    version of ONNX's own operators."""

    node: NodeProto
    types: Mapping[str, TensorType]
    constants: Mapping[str, np.ndarray]
    opset: int

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return {a.name: helper.get_attribute_value(a) for a in self.node.attribute}

    def has(self, name: str, default: Any = None) -> Any:
        """An attribute, text as a str."""
        found = self.attributes.get(name, default)
        return found.decode(errors="replace") if isinstance(found, bytes) else found

    def outputs(self) -> int:
        """How many of its results have a name."""
        return sum(bool(o) for o in self.node.output)

    def input(self, index: int) -> str:
        """The name of an input; "" if it is omitted."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def dtype(self, index: int) -> str:
        """The dtype of an input; "" if unknown."""
        kind = self.types.get(self.input(index))
        return kind.dtype if kind else ""

    def shape(self, index: int) -> tuple[int, ...] | None:
        """The shape of an input; None if unknown."""
        kind = self.types.get(self.input(index))
        return None if kind is None else tuple(int(d) for d in kind.shape)

    def constant(self, index: int) -> np.ndarray | None:
        """The value of an input; None if unknown."""
        return self.constants.get(self.input(index))


def _training(form: Form) -> bool:
    mode = form.constant(2)
    return mode is not None and bool(np.any(mode))


def _resize(form: Form) -> bool:
    """Whether sizes are not whole multiples, so that the scale is not the ratio of the sizes, or
    half pixels are rounded the other way."""
    shape, scales, sizes = form.shape(0), form.constant(2), form.constant(3)
    if shape is None:
        return False
    odd = any(map(form.has, ("antialias", "exclude_outside", "axes")))
    odd = odd or form.has("keep_aspect_ratio_policy", "stretch") != "stretch"
    place = form.has("coordinate_transformation_mode", "half_pixel")
    if odd or place in ("half_pixel_symmetric", "tf_crop_and_resize"):
        return True
    nearest = form.has("mode", "nearest") == "nearest"
    if scales is not None and scales.size == len(shape):
        exact = np.float64(scales) * shape
        return bool(np.any(exact % 1) or (nearest and np.any(scales % 1)))
    if not nearest or sizes is None or sizes.size != len(shape):
        return False
    return bool(np.any(sizes % shape))


def _half_pixel(form: Form) -> bool:
    default = "half_pixel" if form.opset >= 16 else None
    return bool(form.has("coordinate_transformation_mode", default) == "half_pixel")


def _one_sign(form: Form) -> bool:
    return not (form.has("detect_negative", 1) and form.has("detect_positive", 1))


_FLOATS = ("float16", "float32", "float64", "bfloat16")
_RULES: tuple[tuple[str, str, str, Callable[[Form], Any]], ...] = (
    ("BatchNormalization", "both", "in training", lambda f: f.has("training_mode")),
    ("Dropout", "both", "in training", _training),
    ("Dropout", "both", "with its mask", lambda f: f.outputs() > 1),
    ("Gelu", "relay", "approximated by tanh", lambda f: f.has("approximate") == "tanh"),
    ("GRU LSTM RNN", "relay", "in reverse", lambda f: f.has("direction") == "reverse"),
    ("IsInf", "relax", "of one sign", _one_sign),
    ("LayerNormalization", "relax", "with its statistics", lambda f: f.outputs() > 1),
    ("MaxUnpool", "relay", "to a given shape", lambda f: f.constant(2) is not None),
    (
        "Mod",
        "both",
        "of floating-point numbers with fmod=0",
        lambda f: f.dtype(0) in _FLOATS and not f.has("fmod"),
    ),
    ("Resize", "both", "with these scales, sizes or options", _resize),
    ("Resize", "relay", "rounding up", lambda f: f.has("nearest_mode") == "round_prefer_ceil"),
    ("RoiAlign", "both", "with mode=max", lambda f: f.has("mode") == "max"),
    ("RoiAlign", "relay", "with half pixels", _half_pixel),
    ("SpaceToDepth", "both", "in CRD order", lambda f: f.has("mode", "DCR") == "CRD"),
    ("TopK", "both", "of uint64", lambda f: f.dtype(0) == "uint64"),
)
"""Forms of operators that importers compute wrongly: the operators, the importer, and a name."""


def fault_of(ir: str, form: Form) -> str:
    """What to call a node that "relay" or "relax" is known to compute wrongly, else ""."""
    for operators, of, what, is_it in _RULES:
        if form.node.op_type in operators.split() and of in (ir, "both") and is_it(form):
            return f"{form.node.op_type} {what}"
    return ""


def _shifted(form: Form) -> tuple[str, dict[str, Any]]:
    """A shift by too many bits or a negative number, where processors differ: all bits are shifted
    out, and the sign stays, as in ONNX's tests."""
    dtype = form.dtype(0)
    most = np.array(np.iinfo(dtype).bits - 1, dtype)
    text = """
        above = Greater (by, most)
        below = Less (by, zero)
        outside = Or (above, below)
    """
    if form.has("direction") == "RIGHT" and dtype.startswith("int"):
        text += "inside = Where (outside, most, by) y = BitShift (x, inside)"
    else:
        text += """
            inside = Where (outside, zero, by)
            shifted = BitShift (x, inside)
            y = Where (outside, zero, shifted)
        """
    return text, {"most": most, "zero": np.zeros((), dtype)}


def _dropped_nothing(form: Form) -> tuple[str, dict[str, Any]]:
    text = "y = Identity (x) shape = Shape (x) mask = Expand (true, shape)"
    return text, {"true": np.array(True)}


def _infinite(form: Form) -> tuple[str, dict[str, Any]]:
    side = "Greater" if form.has("detect_positive", 1) else "Less"
    text = f"""
        either = IsInf <detect_positive = 1, detect_negative = 1> (x)
        side = {side} (x, zero)
        y = And (either, side)
    """
    return text, {"zero": np.zeros((), form.dtype(0))}


def _of_sizes(form: Form) -> tuple[str, dict[str, Any]]:
    return "sizes = Abs (x) y = LpPool (sizes)", {}


def _compared(form: Form) -> tuple[str, dict[str, Any]]:
    """A one-hot encoding by comparing with the numbers below its depth."""
    shape, depth, values = form.shape(0) or (), form.constant(1), form.constant(2)
    assert depth is not None  # `_WAYS` makes sure of both
    assert values is not None
    count, axis = np.int64(depth.reshape(-1)[0]), form.has("axis", -1)
    axis = axis if axis >= 0 else axis + len(shape) + 1
    text = """
        whole = Cast <to = 7> (x)
        below = Less (whole, zero)
        around = Add (whole, count)
        inside = Where (below, around, whole)
        wide = Reshape (inside, sizes)
        alike = Equal (wide, numbers)
        y = Where (alike, on, off)
    """
    off, on = values.reshape(-1)
    return text, {
        "zero": np.int64(0),
        "count": count,
        "sizes": np.array([*shape[:axis], 1, *shape[axis:]], np.int64),
        "numbers": np.arange(count).reshape(-1, *[1] * (len(shape) - axis)),
        "off": off,
        "on": on,
    }


def _unknown_shift(form: Form) -> bool:
    by, dtype = form.constant(1), form.dtype(0)
    return bool(dtype) and (by is None or not np.all((by >= 0) & (by < np.iinfo(dtype).bits)))


def _mask(form: Form) -> bool:
    kind = form.types.get(form.node.output[1]) if form.outputs() > 1 else None
    return kind is not None and kind.dtype == "bool" and not _training(form)


def _known_depth(form: Form) -> bool:
    return form.shape(0) is not None and {form.input(1), form.input(2)} <= form.constants.keys()


def _one_sided(form: Form) -> bool:
    return bool(form.dtype(0)) and form.has("detect_negative", 1) != form.has("detect_positive", 1)


_Way = tuple[str, Callable[[Form], Any], Callable[[Form], tuple[str, dict[str, Any]]]]
_WAYS: dict[str, _Way] = {
    "BitShift": ("(x, by) => (y)", _unknown_shift, _shifted),
    "Dropout": ("(x, ratio, training) => (y, mask)", _mask, _dropped_nothing),
    "IsInf": ("(x) => (y)", _one_sided, _infinite),
    "LpPool": ("(x) => (y)", lambda f: f.has("p", 2) % 2, _of_sizes),
    "OneHot": ("(x, depth, values) => (y)", _known_depth, _compared),
}
"""When an operator is written as others, and how: in ONNX's own text, with constants by name. An
operator of the same name keeps the attributes of the one that it replaces."""


def rewritten(form: Form, prefix: str) -> list[NodeProto]:
    """Nodes to replace one that importers compute wrongly; none if it stays. Only the names of
    their results begin with the prefix."""
    node = form.node
    head, asked, write = _WAYS.get(node.op_type, ("", None, None))
    if asked is None or write is None or not asked(form):
        return []
    text, constants = write(form)
    body = onnx.parser.parse_function(f'<opset_import: ["": 1]> Way {head} {{ {text} }}')
    tensors = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
        for name, value in ((n, np.asarray(v)) for n, v in constants.items())
    ]
    nodes = [*tensors, *body.node]
    names = {o: f"{prefix}{o}" for one in nodes for o in one.output}
    names |= dict(zip(body.input, node.input, strict=False))
    names |= dict(zip(body.output, node.output, strict=False))
    for one in nodes:
        one.name = node.name
        set_here = {a.name for a in one.attribute}
        if one.op_type == node.op_type:
            one.attribute.extend(a for a in node.attribute if a.name not in set_here)
    written = FunctionProto(node=nodes)
    rename(written, names)
    return list(written.node)
