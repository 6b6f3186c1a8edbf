"""Forms of operators of which TVM's importers of ONNX make something else, by ONNX's own tests.

Where ONNX says how such an operator is made of others, it is written so; else it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from relascope.core.graph import TensorType


class Form:
    """A node with what is known of its inputs."""

    def __init__(
        self, node: Any, types: Mapping[str, TensorType], constants: Mapping[str, np.ndarray]
    ) -> None:
        self.node, self._types, self._constants = node, types, constants

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


_FLOATS = ("float16", "float32", "float64", "bfloat16")
_SIGNED = ("int8", "int16", "int32", "int64")

_Rule = tuple[str, str, Callable[[Form], Any]]
_RULES: dict[str, tuple[_Rule, ...]] = {
    "BatchNormalization": (("both", "in training", lambda f: f.has("training_mode")),),
    "BitShift": (("both", "of signed numbers", lambda f: f.dtype(0) in _SIGNED),),
    "Dropout": (
        ("both", "in training", _training),
        ("both", "with its mask", lambda f: f.outputs() > 1),
    ),
    "IsInf": (
        (
            "relax",
            "of one sign",
            lambda f: not (f.has("detect_negative", 1) and f.has("detect_positive", 1)),
        ),
    ),
    "LayerNormalization": (("relax", "with its statistics", lambda f: f.outputs() > 1),),
    "Mod": (
        (
            "both",
            "of floating numbers with fmod=0",
            lambda f: f.dtype(0) in _FLOATS and not f.has("fmod"),
        ),
    ),
    "Resize": (("both", "by such scales, sizes or options", _resize),),
    "RoiAlign": (("relax", "by the maximum", lambda f: f.has("mode") == "max"),),
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
