"""Forms of operators of which TVM's importers of ONNX make something else, by ONNX's own tests.

Where ONNX says how such an operator is made of others, it is written so, and some are written so
here (`rewritten`); the rest is refused.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from relascope.core.graph import TensorType


def chosen_branch(onnx: Any, node: Any, condition: bool) -> tuple[list[Any], list[Any]]:
    """The nodes and tensors of the branch that an If takes, as they stand in its place.

    What the branch names is named after the If's first result: other branches may have such names.

    Args:
        node: an If.
        condition: what it reads.
    """
    wanted = "then_branch" if condition else "else_branch"
    branch = onnx.GraphProto()
    branch.CopyFrom(next(a.g for a in node.attribute if a.name == wanted))
    own = [*(t.name for t in branch.initializer), *(o for n in branch.node for o in n.output if o)]
    names = {one: f"{node.output[0]}/{one}" for one in own}
    free = {o for n in branch.node for o in n.output}
    results = []
    for made, result in zip(branch.output, node.output, strict=True):
        if result and made.name in free:
            names[made.name] = result
            free.discard(made.name)
        elif result:  # a tensor, a value from outside, or one that is a result already
            results.append((made.name, result))
    _renamed(branch, names)
    copies = [onnx.helper.make_node("Identity", [names.get(a, a)], [b]) for a, b in results]
    return [*branch.node, *copies], list(branch.initializer)


def _renamed(graph: Any, names: Mapping[str, str]) -> None:
    """Put names in the place of others, in the graphs within, too."""
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for value in graph.output:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(v, v) for v in values]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                _renamed(inner, names)


class Form:
    """A node with what is known of its inputs."""

    def __init__(
        self,
        node: Any,
        types: Mapping[str, TensorType],
        constants: Mapping[str, np.ndarray],
        opset: int,
    ) -> None:
        self.node, self._types, self._constants, self._opset = node, types, constants, opset

    def since(self, opset: int, default: Any) -> Any:
        """A default that came with a set of operators; None before it."""
        return default if self._opset >= opset else None

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """By name."""
        import onnx

        return {a.name: onnx.helper.get_attribute_value(a) for a in self.node.attribute}

    def has(self, name: str, default: Any = None) -> Any:
        """An attribute, text as a str."""
        found = self.attributes.get(name, default)
        return found.decode(errors="replace") if isinstance(found, bytes) else found

    def outputs(self) -> int:
        """How many of its results have a name."""
        return sum(bool(o) for o in self.node.output)

    def dtype(self, index: int) -> str:
        """Of an input; "" where it is not known."""
        kind = self._type(index)
        return kind.dtype if kind else ""

    def output_dtype(self, index: int) -> str:
        """The dtype of an output; "" where it is not known."""
        kind = self._types.get(self.node.output[index])
        return kind.dtype if kind else ""

    def shape(self, index: int) -> tuple[int, ...] | None:
        """Of an input."""
        kind = self._type(index)
        return None if kind is None else tuple(int(d) for d in kind.shape)

    def constant(self, index: int) -> np.ndarray | None:
        """The value of an input that is known."""
        return self._constants.get(self._name(index))

    def _name(self, index: int) -> str:
        return self.node.input[index] if index < len(self.node.input) else ""

    def _type(self, index: int) -> TensorType | None:
        return self._types.get(self._name(index))


def _reverse(form: Form) -> bool:
    return bool(form.has("direction") == "reverse")


def _training(form: Form) -> bool:
    mode = form.constant(2)
    return mode is not None and bool(np.any(mode))


def _resize(form: Form) -> bool:
    """Whether sizes are no whole multiples, for which the scale is not the ratio of the sizes, or
    half pixels are rounded the other way."""
    shape, scales, sizes = form.shape(0), form.constant(2), form.constant(3)
    if shape is None:
        return False
    odd = form.has("antialias") or form.has("exclude_outside") or form.has("axes")
    odd = odd or form.has("keep_aspect_ratio_policy", "stretch") != "stretch"
    place = form.has("coordinate_transformation_mode", "half_pixel")
    if odd or place in ("half_pixel_symmetric", "tf_crop_and_resize"):
        return True
    nearest = form.has("mode", "nearest") == "nearest"
    if scales is not None and scales.size == len(shape):
        exact = [float(s) * d for s, d in zip(scales, shape, strict=True)]
        return any(e != int(e) for e in exact) or (nearest and any(s != int(s) for s in scales))
    if nearest and sizes is not None and sizes.size == len(shape):
        return any(int(s) % d for s, d in zip(sizes, shape, strict=True))
    return False


_INT64 = 7
_FLOATS = ("float16", "float32", "float64", "bfloat16")

_Rule = tuple[str, str, Callable[[Form], Any]]
_RULES: dict[str, tuple[_Rule, ...]] = {
    "BatchNormalization": (("both", "in training", lambda f: f.has("training_mode")),),
    "Dropout": (
        ("both", "in training", _training),
        ("both", "with its mask", lambda f: f.outputs() > 1),
    ),
    "Gelu": (("relay", "by tanh", lambda f: f.has("approximate") == "tanh"),),
    "GRU": (("relay", "in reverse", _reverse),),
    "IsInf": (
        (
            "relax",
            "of one sign",
            lambda f: not (f.has("detect_negative", 1) and f.has("detect_positive", 1)),
        ),
    ),
    "LayerNormalization": (("relax", "with its statistics", lambda f: f.outputs() > 1),),
    "LSTM": (("relay", "in reverse", _reverse),),
    "MaxUnpool": (("relay", "to a given shape", lambda f: f.constant(2) is not None),),
    "Mod": (
        (
            "both",
            "of floating numbers with fmod=0",
            lambda f: f.dtype(0) in _FLOATS and not f.has("fmod"),
        ),
    ),
    "Resize": (
        ("both", "by such scales, sizes or options", _resize),
        ("relay", "rounding up", lambda f: f.has("nearest_mode") == "round_prefer_ceil"),
    ),
    "RNN": (("relay", "in reverse", _reverse),),
    "RoiAlign": (
        ("both", "by the maximum", lambda f: f.has("mode") == "max"),
        (
            "relay",
            "by half pixels",
            lambda f: (
                f.has("coordinate_transformation_mode", f.since(16, "half_pixel")) == "half_pixel"
            ),
        ),
    ),
    "SpaceToDepth": (("both", "of CRD order", lambda f: f.has("mode", "DCR") == "CRD"),),
    "TopK": (("both", "of uint64", lambda f: f.dtype(0) == "uint64"),),
}


def refused(ir: str, form: Form) -> str:
    """What a node is that is refused; "" where it is not, as far as is known.

    Args:
        ir: "relay" or "relax".
    """
    for of, what, is_it in _RULES.get(form.node.op_type, ()):
        if of in (ir, "both") and is_it(form):
            return f"{form.node.op_type} {what}"
    return ""


class _Written:
    """Nodes in place of one.

    Args:
        prefix: of the names of what they make; nothing else bears it.
    """

    def __init__(self, form: Form, prefix: str) -> None:
        self.form, self._prefix = form, prefix
        self.nodes: list[Any] = []
        self.data = form.node.input[0]

    def op(self, operator: str, *inputs: str, place: int | None = None, **attributes: Any) -> str:
        """Add a node; the name of what it makes.

        Args:
            place: index of the output of the one replaced that it makes.
        """
        import onnx

        made = f"{self._prefix}{len(self.nodes)}" if place is None else self.form.node.output[place]
        node = onnx.helper.make_node(operator, inputs, [made], self.form.node.name, **attributes)
        node.metadata_props.extend(self.form.node.metadata_props)
        self.nodes.append(node)
        return made

    def constant(self, value: Any, dtype: str) -> str:
        """Add a tensor."""
        import onnx

        tensor = onnx.numpy_helper.from_array(np.array(value, dtype=dtype))
        return self.op("Constant", value=tensor)


def _shifted(written: _Written) -> None:
    """Shifts by too much or by less than nothing, of which processors make what they like: all
    bits are shifted out, and the sign stays, as ONNX's tests have it."""
    form, (data, by) = written.form, written.form.node.input
    dtype = form.dtype(0)
    signed, most = dtype.startswith("int"), np.iinfo(dtype).bits - 1
    outside = written.op("Greater", by, written.constant(most, dtype))
    if signed:
        below = written.op("Less", by, written.constant(0, dtype))
        outside = written.op("Or", outside, below)
    zero, right = written.constant(0, dtype), form.has("direction") == "RIGHT"
    stays = written.constant(most, dtype) if right and signed else zero
    inside = written.op("Where", outside, stays, by)
    direction = {"direction": form.has("direction")}
    if right and signed:
        written.op("BitShift", data, inside, place=0, **direction)
    else:
        written.op(
            "Where", outside, zero, written.op("BitShift", data, inside, **direction), place=0
        )


def _dropped_nothing(written: _Written) -> None:
    """Dropout at inference: all stays."""
    shape = written.op("Shape", written.data)
    written.op("Identity", written.data, place=0)
    written.op("Expand", written.constant(True, "bool"), shape, place=1)


def _one_sided(written: _Written) -> None:
    """Infinite and of a sign."""
    side = "Greater" if written.form.has("detect_positive", 1) else "Less"
    zero = written.constant(0, written.form.dtype(0))
    either = written.op("IsInf", written.data)
    written.op("And", either, written.op(side, written.data, zero), place=0)


def _of_sizes(written: _Written) -> None:
    """A norm of an odd order is of absolute values."""
    written.op("LpPool", written.op("Abs", written.data), place=0, **written.form.attributes)


def _compared(written: _Written) -> None:
    """A one-hot encoding by comparing with the numbers below its depth."""
    form = written.form
    shape, depth, values = form.shape(0) or (), form.constant(1), form.constant(2)
    assert depth is not None  # by `_WAYS`, and the values are, too
    assert values is not None
    count, axis = int(depth.reshape(-1)[0]), form.has("axis", -1)
    axis = axis if axis >= 0 else axis + len(shape) + 1
    whole = written.op("Cast", written.data, to=_INT64)
    below = written.op("Less", whole, written.constant(0, "int64"))
    around = written.op("Add", whole, written.constant(count, "int64"))
    whole = written.op("Where", below, around, whole)
    wide = written.constant([*shape[:axis], 1, *shape[axis:]], "int64")
    numbers = np.arange(count).reshape(-1, *[1] * (len(shape) - axis))
    alike = written.op(
        "Equal", written.op("Reshape", whole, wide), written.constant(numbers, "int64")
    )
    off, on = (written.constant(v, str(values.dtype)) for v in values.reshape(-1))
    written.op("Where", alike, on, off, place=0)


def _known_shift(form: Form) -> bool:
    by, dtype = form.constant(1), form.dtype(0)
    most = np.iinfo(dtype).bits if dtype else 0
    return not dtype or (by is not None and bool(np.all((by >= 0) & (by < most))))


_Way = tuple[Callable[[Form], Any], Callable[[_Written], None]]
_WAYS: dict[str, _Way] = {
    "BitShift": (lambda f: not _known_shift(f), _shifted),
    "Dropout": (
        lambda f: f.outputs() > 1 and f.output_dtype(1) == "bool" and not _training(f),
        _dropped_nothing,
    ),
    "IsInf": (
        lambda f: f.dtype(0) and f.has("detect_negative", 1) != f.has("detect_positive", 1),
        _one_sided,
    ),
    "LpPool": (lambda f: f.has("p", 2) % 2, _of_sizes),
    "OneHot": (
        lambda f: (
            f.shape(0) is not None and f.constant(1) is not None and f.constant(2) is not None
        ),
        _compared,
    ),
}
"""When an operator is written as others, and how."""


def rewritten(form: Form, prefix: str) -> list[Any]:
    """Nodes in place of one of which importers make something else; none where it stays.

    Args:
        prefix: of the names of what they make; nothing else bears it.
    """
    asked, write = _WAYS.get(form.node.op_type, (None, None))
    if asked is None or write is None or not asked(form):
        return []
    written = _Written(form, prefix)
    write(written)
    return written.nodes
