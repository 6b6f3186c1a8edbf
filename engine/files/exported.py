"""Exported programs (`.pt2`): each text in them is held against what may stand in its place.

torch makes Python code of names, evaluates the expressions of sizes, looks operators up by dotted
names that reach any module, and unpickles what a program calls opaque. So each text that it takes
has a grammar here, by the key that it stands under; a key that is not known has the narrowest.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.files.archive import Archive
from relascope.engine.files.operators import allowed
from relascope.engine.protocol.results import OpenSize

PROGRAM = "models/model.json"
_MEMBERS = re.compile(
    r"models/model\.json|data/(?:weights|constants)/model_(?:weights|constants)_config\.json"
    r"|data/weights/weight_\d+|data/constants/tensor_\d+|data/sample_inputs/model\.pt"
    r"|archive_format|archive_version|byteorder|version|\.data/\w+|extra/.*"
)
_OLD = "serialized_exported_program.json"

_NAME = re.compile(r"[A-Za-z_]\w*|", re.ASCII)
_PATH = re.compile(r'[^"\\\x00-\x1f\x7f]{0,2000}')
_WORDS = re.compile(r"[\w .,+<=>()\[\]{}*:;/-]{0,1000}", re.ASCII)
_TEXT = re.compile(r"(?s).*")
_PAYLOAD = re.compile(r"(?:weight|tensor)_\d+")
_DEVICE = re.compile(r"cpu|cuda|mps|xpu")
_OPERATOR = re.compile(
    r"_operator\.(?:add|sub|mul|floordiv|truediv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_"
    r"|not_|getitem)|math\.(?:ceil|floor|trunc|sqrt)"
    r"|torch\.(?:sym_(?:max|min|float|int|ite|not|sum|sqrt)|_sym_sqrt)"
    r"|torch\.ops\.higher_order\.(?:wrap_with_set_grad_enabled|wrap_with_autocast|cond)"
    r"|torch\._C\._set_grad_enabled"
)
_ATEN = re.compile(r"torch\.ops\.aten\.(\w+)\.\w+", re.ASCII)

_SYMBOL = re.compile(r"[a-z]{1,4}\d{1,9}")
_PLAIN = re.compile(r"([a-z]{1,4}\d{1,9})|Symbol\('([a-z]{1,4}\d{1,9})'[^()]*\)")
_FUNCTION_NAMES = """
    FloorDiv ModularIndexing Where PythonMod Mod CleanDiv CeilToInt FloorToInt CeilDiv FloatTrueDiv
    IntTrueDiv TruncToFloat TruncToInt RoundToInt RoundDecimal ToFloat Identity Max Min Abs Eq Ne Lt
    Le Gt Ge And Or Not Piecewise floor ceiling sqrt OpaqueUnaryFn_sqrt Integer Float Rational Add
    Mul Pow Symbol Equality Unequality LessThan StrictLessThan GreaterThan StrictGreaterThan
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_NUMBERS = ("oo", "int_oo", "true", "false")
_SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub)
_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.BitAnd, ast.BitOr, ast.Invert)
_PARTS = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Load, *_SIGNS, *_COMPARED)
_CONTAINERS = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")


def is_expression(text: str) -> bool:
    """Whether a size's expression is made of numbers, symbols, known functions and signs alone.

    Both as torch prints one and as sympy spells it: `2*s30`, `Mul(Integer(2), Symbol('s30'))`.
    There are few powers, of one digit, and no precision beyond that of float64's like, so that no
    number outgrows memory.
    """
    if len(text) > 2000:
        return False
    try:
        nodes = [*ast.walk(ast.parse(text.strip(), mode="eval"))]
    except (SyntaxError, RecursionError, MemoryError):
        return False
    powers = [n.right for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow)]
    called = [n for n in nodes if isinstance(n, ast.Call)]
    powers += [n.args[-1] for n in called if n.args and ast.unparse(n.func) == "Pow"]
    exponent = re.compile(r"-?\d|Integer\(-?\d\)|Rational\(-?\d, \d\)")
    return (
        all(map(_is_part, nodes))
        and all(map(_is_precise, called))
        and len(powers) <= 3
        and all(exponent.fullmatch(ast.unparse(p)) for p in powers)
    )


_PRECISION = 400  # bits or digits


def _is_precise(call: ast.Call) -> bool:
    """Whether a call asks for no more digits than numbers of programs have."""
    asked = [k.value for k in call.keywords]
    if isinstance(call.func, ast.Name) and call.func.id in ("Float", "RoundDecimal"):
        asked += call.args[1:]
    digits = (a.operand if isinstance(a, ast.UnaryOp) else a for a in asked)
    return all(isinstance(d, ast.Constant) and d.value in range(_PRECISION) for d in digits)


def _is_part(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
    if isinstance(node, ast.Name):
        return node.id in (*_FUNCTIONS, *_NUMBERS) or bool(_SYMBOL.fullmatch(node.id))
    if isinstance(node, ast.keyword):
        return node.arg is not None and node.arg.isalpha() and isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return bool(_SYMBOL.fullmatch(node.value) or re.fullmatch(r"-?\d+\.\d+", node.value))
        return isinstance(node.value, int | float) and abs(node.value) < 2**64
    return isinstance(node, _PARTS)


LIBRARY = "torch.ops.transformers.grouped_mm_fallback.default"
"""The one operator of a library's that a program may have: experts of transformers' mixtures."""


def _is_operator(text: str) -> bool:
    if text == LIBRARY:
        return True
    aten = _ATEN.fullmatch(text)
    return allowed(f"aten::{aten[1]}") if aten else bool(_OPERATOR.fullmatch(text))


def _is_spec(text: str) -> bool:
    """Whether a text says how inputs nest, in lists, tuples and dicts, and no class is named."""
    version, tree = json.loads(text)
    todo = [tree]
    while todo:
        node = todo.pop()
        if node["type"] not in _CONTAINERS or set(node) != {"type", "context", "children_spec"}:
            return False
        context = node["context"]
        keys = json.loads(context) if isinstance(context, str) else context
        if not (
            keys is None or (isinstance(keys, list) and all(type(k) in (str, int) for k in keys))
        ):
            return False
        todo += node["children_spec"]
    return version == 1


def _by(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


_OF_PATHS = "parameter_name buffer_name tensor_constant_name user_input_name fqn nn_module_stack"
_OF_TEXT = "stack_trace source_fn_stack torch_fn from_node custom guards_code"
_Fits = Callable[[str], bool]
_TEXTS: dict[str, tuple[_Fits, str]] = {
    **dict.fromkeys(("target", "as_operator"), (_is_operator, "an operator of tensors")),
    "expr_str": (is_expression, "an expression of a size"),
    **dict.fromkeys(("in_spec", "out_spec"), (_is_spec, "plain lists, tuples and dicts")),
    **dict.fromkeys(_OF_PATHS.split(), (_by(_PATH), "the name of a module or parameter")),
    **dict.fromkeys(_OF_TEXT.split(), (_by(_TEXT), "text")),
    **dict.fromkeys(("as_string", "as_strings"), (_by(_WORDS), "a plain word")),
    **dict.fromkeys(("verifiers", "torch_version"), (_by(_WORDS), "a plain word")),
    "path_name": (_by(_PAYLOAD), "the name of a tensor's member"),
    "type": (_by(_DEVICE), "a kind of device"),
}
_ELSE = _by(_NAME), "a name"
_REFUSED = {
    "as_custom_obj": "an object, which may run code when it is read",
    "custom_obj": "an object, which may run code when it is read",
    "use_pickle": "a pickle in a tensor's place",
    "_guards_code": "code",
}


def check_program(archive: Archive) -> None:
    """Refuse a program with a text that torch would make more of than a name, size or operator.

    Raises:
        EngineError: kind "file".
    """
    if _OLD in archive.sizes:
        message = "This program is of PyTorch 2.7 or older, in a format that nothing reads safely."
        raise EngineError("file", message, archive.path.name, "Export it again.")
    if PROGRAM not in archive.sizes:
        raise EngineError("file", "This file is not an exported program.", archive.path.name)
    for member in archive.sizes:
        if not _MEMBERS.fullmatch(member):
            raise archive.refused(member, "has no place in an exported program")
    for member in archive.sizes:
        if member.endswith(".json") and not member.startswith("extra/"):
            _check_json(archive, member)


def open_sizes(archive: Archive) -> dict[str, OpenSize]:
    """The symbols of a checked program: each with the example's size, and the least and greatest
    that the program takes, of which no tensor has no element.

    Raises:
        EngineError: kind "file"; ranges are no numbers.
    """
    program = json.loads(archive.text(PROGRAM))
    sizes: dict[str, int] = {}
    todo = [program]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            text, hint = one.get("expr_str"), one.get("hint")
            found = _PLAIN.fullmatch(text) if isinstance(text, str) else None
            if found and isinstance(hint, dict) and type(hint.get("as_int")) is int:
                sizes[found[1] or found[2]] = hint["as_int"]
        if isinstance(one, dict | list):
            todo += one.values() if isinstance(one, dict) else one
    found_sizes = {}
    for symbol, ends in (program.get("range_constraints") or {}).items():
        low, high = ends.get("min_val"), ends.get("max_val")
        if not all(end is None or type(end) is int for end in (low, high)):
            raise archive.refused(PROGRAM, f"has a range of {symbol[:40]} that is no numbers")
        least, most = max(low or 1, 1), high if high is None or high < 2**60 else None
        size = max(sizes.get(symbol, least), least)
        found_sizes[symbol] = OpenSize(symbol, min(size, most or size), least, most)
    return found_sizes


def _check_json(archive: Archive, member: str) -> None:
    try:
        value = json.loads(archive.text(member))
    except (ValueError, RecursionError) as wrong:
        raise archive.refused(member, f"is no JSON: {wrong}") from wrong
    for key, text in _texts(archive, member, value):
        fits, what = _TEXTS.get(key, _ELSE)
        try:
            right = fits(text)
        except (ValueError, TypeError, KeyError, RecursionError):
            right = False
        if not right:
            raise archive.refused(member, f"has {text[:120]!r} as {key}, which is not {what}")


def _texts(archive: Archive, member: str, value: Any) -> Iterator[tuple[str, str]]:
    """Each text with the key that it stands under; keys of dicts themselves are checked here."""
    todo = [("", value)]
    while todo:
        key, one = todo.pop()
        if isinstance(one, str):
            yield key, one
        elif isinstance(one, list):
            todo += [(key, inner) for inner in one]
        elif isinstance(one, dict):
            for name, inner in one.items():
                if not _PATH.fullmatch(name):
                    raise archive.refused(member, f"has {name[:120]!r} as a name")
                if name in _REFUSED and inner:
                    raise archive.refused(member, f"has {_REFUSED[name]} ({name})")
                todo.append((name, inner))
