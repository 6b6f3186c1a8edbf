"""What operators are, by their names in either IR."""

from __future__ import annotations

from functools import cache

# A call's colour, where no role and no comparison speaks: what sort of work it does. The first
# entry with a word that the operator's last name contains wins.
_CATEGORIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("convolution", ("conv",)),
    ("matmul", ("dense", "matmul", "linear", "einsum")),
    ("normalisation", ("softmax", "_norm", "lrn", "dropout")),
    ("reduction", ("pool", "sum", "mean", "variance", "max_", "argm", "all", "any", "prod")),
    (
        "activation",
        ("relu", "gelu", "silu", "tanh", "sigmoid", "erf", "exp", "log", "sqrt", "clip"),
    ),
    (
        "shape",
        (
            "reshape",
            "transpose",
            "permute",
            "squeeze",
            "expand_dims",
            "broadcast",
            "split",
            "slice",
            "concat",
            "stack",
            "flatten",
            "layout",
            "tile",
            "repeat",
            "pad",
            "collapse",
            "take",
            "gather",
            "scatter",
            "index_",
            "cast",
            "astype",
            "copy",
            "like",
            "zeros",
            "ones",
            "full",
            "flip",
            "reverse",
            "resize",
            "tril",
            "triu",
            "arange",
        ),
    ),
    (
        "elementwise",
        (
            "add",
            "subtract",
            "multiply",
            "divide",
            "power",
            "maximum",
            "minimum",
            "where",
            "negative",
            "equal",
            "less",
            "greater",
            "logical",
            "abs",
            "floor",
            "ceil",
            "sign",
            "sin",
            "cos",
        ),
    ),
)


@cache
def category(op: str) -> str:
    """The sort of work an operator does ("nn.batch_matmul" -> "matmul"), "call" if unknown."""
    last = op.rsplit(".", 1)[-1].lower()
    if last in ("max", "min"):  # and not maximum, minimum
        return "reduction"
    for name, words in _CATEGORIES:
        if any(word in last for word in words):
            return name
    return "call"
