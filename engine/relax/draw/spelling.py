"""Names that differ between TVMs with Relax, because recordings are also made in earlier ones.

Until 0.25 a type was a `struct_info`, a variable's name its `name_hint`, and a number among
arguments a `PrimValue`; constants had a class of Relax's own until 0.26."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

_INFOS = hasattr(relax, "TensorStructInfo")

loops = getattr(tvm, "tirx", None) or tvm.tir
Var = getattr(tvm.ir, "Var", None) or relax.Var
Call = getattr(tvm.ir, "Call", None) or relax.Call
Constant = getattr(tvm.ir, "GenericConst", None) or relax.Constant
TensorType = relax.TensorStructInfo if _INFOS else relax.TensorType
TupleType = relax.TupleStructInfo if _INFOS else relax.TupleType

type_of = attrgetter("struct_info" if _INFOS else "ty")
name_of = attrgetter("name_hint" if _INFOS else "name")
value_of = attrgetter("value" if Constant is getattr(tvm.ir, "GenericConst", None) else "data")

boxed = tuple(
    getattr(module, name)
    for module, name in (
        (tvm.ir, "StringImm"),
        (relax, "StringImm"),
        (relax, "PrimValue"),
        (relax, "DataTypeImm"),
        (loops, "IntImm"),
        (loops, "FloatImm"),
    )
    if hasattr(module, name)
)
"""Classes of numbers, texts and dtypes among arguments, each with a `value`."""


def each(tree: Any, kind: type, see: Callable[[Any], None]) -> None:
    """Call `see` on each statement of a kind in a kernel's body."""
    if hasattr(loops, "stmt_functor"):
        loops.stmt_functor.post_order_visit(tree, lambda s: see(s) if isinstance(s, kind) else None)
    else:
        tvm_ffi.structural_walk(tree, [(kind, see)], order="post")
