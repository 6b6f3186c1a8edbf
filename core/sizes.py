"""Sizes that a program leaves open, as its types write them: "n", "2 * n", "T.max(n, 4)"."""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping

_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_EXTREMES: dict[str, Callable[[Iterable[int]], int]] = {"T.max": max, "T.min": min}


def sizes_in(size: str) -> dict[str, None]:
    """Names of the sizes that a size is computed from, in order."""
    return dict.fromkeys(re.findall(r"(?<![\w.])[^\W\d]\w*(?![\w.(])", size))


def size_of(size: str, sizes: Mapping[str, int]) -> int:
    """A size, computed from known ones. Raises ValueError if it is not arithmetic of whole
    numbers, divides by 0, or has an unknown name."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in sizes:
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return int(_ARITHMETIC[type(node.op)](value(node.left), value(node.right)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _EXTREMES and node.args:
            return _EXTREMES[ast.unparse(node.func)](map(value, node.args))
        raise ValueError(f"{size} cannot be computed from {', '.join(sizes) or 'nothing'}.")

    try:
        return value(ast.parse(size, mode="eval").body)
    except (SyntaxError, ZeroDivisionError) as wrong:
        raise ValueError(f"{size} is not a size.") from wrong
