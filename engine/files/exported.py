"""Exported programs (`.pt2`): each text in them is checked by a grammar for its place.

torch turns names into Python code, evaluates size expressions, looks up operators by dotted names
that reach any module, and unpickles what a program calls opaque. So each text must match a grammar,
chosen by its key; an unknown key has the narrowest.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PureWindowsPath
from typing import Any

from torch.utils import _pytree as pytree

from relascope.core.errors import EngineError
from relascope.core.visible import visible
from relascope.engine.files.archive import Archive
from relascope.engine.files.operators import allowed
from relascope.engine.protocol.results import OpenSize

PROGRAM = "models/model.json"
_MEMBERS = re.compile(
    r"models/model\.json|data/(?:weights|constants)/model_(?:weights|constants)_config\.json"
    r"|data/weights/weight_\d+|data/constants/tensor_\d+|data/sample_inputs/model\.pt"
    r"|archive_format|archive_version|byteorder|version|\.data/\w+|extra/.*"
)

_DOTTED = re.compile(r"[\w.]{1,300}", re.ASCII)
_PATH = re.compile(r'[^"\\\x00-\x1f\x7f]{0,2000}')
_WORDS = re.compile(r"[\w .,+<=>()\[\]{}*:;/-]{0,1000}", re.ASCII)
_FLOAT = re.compile(r"-?Infinity|NaN")
_PAYLOAD = re.compile(r"(?:weight|tensor)_\d+")
_DEVICE = re.compile(r"cpu|cuda|mps|xpu")
_OPERATOR = re.compile(
    r"_operator\.(?:add|sub|mul|floordiv|truediv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_"
    r"|not_|lshift|rshift|getitem)|math\.(?:ceil|floor|trunc|sqrt)"
    r"|torch\.(?:sym_(?:max|min|float|int|ite|not|sum|sqrt)|_sym_sqrt)"
    r"|torch\.ops\.higher_order\.(?:wrap_with_set_grad_enabled|wrap_with_autocast|cond)"
    r"|torch\._C\._set_grad_enabled"
)
_ATEN = re.compile(r"torch\.ops\.aten\.(\w+)\.\w+", re.ASCII)
_ASSERTION = re.compile(r"torch\.ops\.aten\._(?:functional_)?assert_(?:scalar|async)\.\w+")

_SYMBOL = re.compile(r"[a-z]{1,4}\d{1,9}")
_PLAIN = re.compile(r"([a-z]{1,4}\d{1,9})|Symbol\('([a-z]{1,4}\d{1,9})'[^()]*\)")
_FUNCTION_NAMES = """
    FloorDiv ModularIndexing Where PythonMod Mod CleanDiv CeilToInt FloorToInt CeilDiv FloatTrueDiv
    IntTrueDiv TruncToFloat TruncToInt RoundToInt RoundDecimal ToFloat Identity Max Min Abs Eq Ne Lt
    Le Gt Ge And Or Not Piecewise ExprCondPair floor ceiling sqrt OpaqueUnaryFn_sqrt Integer Float
    Rational Add Mul Pow FloatPow PowByNatural Symbol Equality Unequality LessThan StrictLessThan
    GreaterThan StrictGreaterThan
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_NUMBERS = ("oo", "int_oo", "true", "false")
_SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub)
_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.BitAnd, ast.BitOr, ast.Invert)
_PARTS = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Load, *_SIGNS, *_COMPARED)
_CLASS = re.compile(r'"type": "(?!builtins\.(?:tuple|list|dict)"|collections\.OrderedDict")')
_EXPONENT = re.compile(
    r"-?\d|Integer\(-?\d\)|Rational\(-?\d, \d\)|Float\('-?\d\.\d{1,20}', precision=53\)"
)
_DIGITS = re.compile(r"-?\d{1,20}\.\d{1,20}(?:e-?\d{1,2})?")


def is_expression(text: str) -> bool:
    """Whether a size's expression consists of numbers, symbols, known functions and signs alone.

    As torch prints it or as sympy spells it: `2*s30`, `Mul(Integer(2), Symbol('s30'))`.
    At most three powers, of one digit, and only float64's precision are allowed, so that no number
    outgrows memory.
    """
    if len(text) > 2000:
        return False
    try:
        nodes = [*ast.walk(ast.parse(text.strip(), mode="eval"))]
    except (SyntaxError, RecursionError, MemoryError):
        return False
    powers = [n.right for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow)]
    for node in nodes:
        match node:
            case ast.Call(ast.Name("Pow" | "FloatPow" | "PowByNatural"), [*_, power]):
                powers.append(power)
    few = len(powers) <= 3 and all(_EXPONENT.fullmatch(ast.unparse(p)) for p in powers)
    return few and all(map(_is_part, nodes))


def _is_part(node: ast.AST) -> bool:
    match node:
        case ast.Call(ast.Name("Float" | "RoundDecimal"), [_, *digits]):
            plain = (d.operand if isinstance(d, ast.UnaryOp) else d for d in digits)
            return all(isinstance(d, ast.Constant) and d.value in range(400) for d in plain)
        case ast.Call(function):
            return isinstance(function, ast.Name) and function.id in _FUNCTIONS
        case ast.Name(name):
            return name in (*_FUNCTIONS, *_NUMBERS) or bool(_SYMBOL.fullmatch(name))
        case ast.keyword("precision", value):
            return isinstance(value, ast.Constant) and value.value == 53
        case ast.keyword(_, value):
            return isinstance(value, ast.Constant) and value.value in (True, False)
        case ast.Constant(str(text)):
            return bool(_SYMBOL.fullmatch(text) or _DIGITS.fullmatch(text))
        case ast.Constant(value):
            return isinstance(value, int | float) and abs(value) < 2**64
    return isinstance(node, _PARTS)


LIBRARY = "torch.ops.transformers.grouped_mm_fallback.default"
"""The only operator of a library that a program may call: transformers' mixtures of experts."""


def _is_operator(text: str) -> bool:
    if text == LIBRARY:
        return True
    aten = _ATEN.fullmatch(text)
    return allowed(f"aten::{aten[1]}") if aten else bool(_OPERATOR.fullmatch(text))


def nesting(text: str) -> pytree.TreeSpec:
    """How inputs or outputs nest, in tuples, lists and dicts. Raises ValueError, KeyError,
    TypeError or RecursionError for any other text. An instance of a class becomes a tuple of its
    fields; its class is not looked up, because torch would have the class rebuild it from a text
    that the file chooses."""
    version, tree = json.loads(text)
    if version != 1:
        raise ValueError(f"its version is {version}")
    return _nest(tree)


def _nest(tree: dict[str, Any]) -> pytree.TreeSpec:
    kind, context = tree["type"], tree["context"]
    inner = [_nest(t) for t in tree["children_spec"]]
    if kind is None:
        return pytree.treespec_leaf()
    if not isinstance(kind, str):
        raise TypeError(f"a type is {kind}")
    if kind == "builtins.list":
        return pytree.TreeSpec(list, None, inner)
    if kind in ("builtins.dict", "collections.OrderedDict"):
        keys = json.loads(context) if isinstance(context, str) else context
        if len({*keys}) != len(inner) or not all(type(k) in (str, int) for k in keys):
            raise ValueError(f"the keys of a dict are {keys}")
        return pytree.TreeSpec(dict, keys, inner)
    return pytree.TreeSpec(tuple, None, inner)


_OF_PATHS = "parameter_name buffer_name tensor_constant_name user_input_name fqn nn_module_stack"
_OF_TEXT = "stack_trace source_fn_stack torch_fn from_node custom guards_code assert_msg"
_GRAMMARS: tuple[tuple[str, Callable[[str], object], str], ...] = (
    ("target as_operator", _is_operator, "a tensor operator"),
    ("expr_str", is_expression, "a size expression"),
    ("in_spec out_spec", nesting, "a nesting of tensors"),
    (_OF_PATHS, _PATH.fullmatch, "the name of a module or parameter"),
    (_OF_TEXT, lambda text: True, "text"),
    ("as_string as_strings verifiers torch_version", _WORDS.fullmatch, "a plain word"),
    ("as_float as_floats as_float_lists real imag", _FLOAT.fullmatch, "a number"),
    ("path_name", _PAYLOAD.fullmatch, "the name of a tensor's member"),
    ("type", _DEVICE.fullmatch, "a device type"),
)
_TEXTS = {key: (fits, what) for keys, fits, what in _GRAMMARS for key in keys.split()}
_CONSTANTS = (("constant_input", "value", "as_string"), ("graph", "inputs", "as_string"))
"""Where a program stores a text that was an input when it was exported."""
_ELSE = (lambda text: not text or text.isidentifier()), "a name"
_REFUSED = {
    "as_custom_obj": "an object, which can run code when it is read",
    "custom_obj": "an object, which can run code when it is read",
    "use_pickle": "a pickle instead of a tensor",
    "_guards_code": "code",
}


def check_program(archive: Archive) -> None:
    """Refuse (kind "file") a program with a text that torch could use as more than a name, size or
    operator."""
    if PROGRAM not in archive.sizes:
        raise EngineError("file", "This file is not an exported program.", archive.path.name)
    for member in archive.sizes:
        if not _MEMBERS.fullmatch(member):
            raise archive.refused(member, "does not belong in an exported program")
    for member in archive.sizes:
        if member.endswith(".json") and not member.startswith("extra/"):
            _check_json(archive, member)


def open_sizes(archive: Archive) -> dict[str, OpenSize]:
    """The open sizes of a checked program: each symbol with the example's size, and the least (at
    least 1) and greatest that the program accepts. Refuses (kind "file") ranges that are not
    integers."""
    sizes: dict[str, int] = {}

    def read(one: dict[str, Any]) -> dict[str, Any]:
        text, hint = one.get("expr_str"), one.get("hint")
        found = _PLAIN.fullmatch(text) if isinstance(text, str) else None
        if found and isinstance(hint, dict) and type(hint.get("as_int")) is int:
            sizes[found[1] or found[2]] = hint["as_int"]
        return one

    program = json.loads(archive.text(PROGRAM), object_hook=read)
    found_sizes = {}
    for symbol, ends in (program.get("range_constraints") or {}).items():
        low, high = ends.get("min_val"), ends.get("max_val")
        if not all(end is None or type(end) is int for end in (low, high)):
            wrong = f"has a range of {symbol[:40]} with other ends than integers"
            raise archive.refused(PROGRAM, wrong)
        least, most = max(low or 1, 1), high if high is None or high < 2**60 else None
        size = max(sizes.get(symbol, least), least)
        found_sizes[symbol] = OpenSize(symbol, min(size, most or size), least, most)
    return found_sizes


def takes_classes(archive: Archive) -> bool:
    """Whether a checked program was exported with inputs that are instances of classes."""
    calls = json.loads(archive.text(PROGRAM))["graph_module"]["module_call_graph"]
    return any(_CLASS.search((call["signature"] or {}).get("in_spec", "")) for call in calls)


def _check_json(archive: Archive, member: str) -> None:
    try:
        value = json.loads(archive.text(member))
    except (ValueError, RecursionError) as wrong:
        raise archive.refused(member, f"is not JSON: {wrong}") from wrong
    for key, text in _texts(archive, member, value):
        fits, what = _TEXTS.get(key, _ELSE)
        try:
            right = fits(text)
        except (ValueError, TypeError, KeyError, RecursionError):
            right = False
        if not right:
            raise archive.refused(member, f"has {text[:120]!r} as {key}, which is not {what}")


def _texts(archive: Archive, member: str, value: Any) -> Iterator[tuple[str, str]]:
    """Each text with its key; the keys of dicts are checked here.

    The message of an assertion has the key `assert_msg`, and so does a text that was an input and
    is now a constant of the program: torch writes both into code by `repr`, and nothing evaluates
    them.
    """
    todo: list[tuple[tuple[str, ...], bool, Any]] = [(("",), False, value)]
    while todo:
        path, asserts, one = todo.pop()
        if isinstance(one, str):
            printed = path[-1] == "as_string" and (asserts or path in _CONSTANTS)
            yield ("assert_msg" if printed else path[-1]), one
        elif isinstance(one, list):
            todo += [(path, asserts, inner) for inner in one]
        elif isinstance(one, dict):
            if (target := one.get("target")) is not None:
                _check_target(archive, member, one)
                asserts = _ASSERTION.fullmatch(target) is not None
            for name, inner in one.items():
                if not _PATH.fullmatch(name):
                    raise archive.refused(member, f"has the invalid name {name[:120]!r}")
                if name in _REFUSED and inner:
                    raise archive.refused(member, f"has {_REFUSED[name]} ({name})")
                todo.append(((*path[-2:], name), asserts, inner))


def _check_target(archive: Archive, member: str, node: dict[str, Any]) -> None:
    """Refuse a node that calls what no file may call; as an operator if it looks like one."""
    target = node["target"]
    if isinstance(target, str) and _is_operator(target):
        return
    if not isinstance(target, str) or not _DOTTED.fullmatch(target):
        raise archive.refused(member, f"calls {str(target)[:120]!r}, which is not an operator")
    notes = node["metadata"] if isinstance(node.get("metadata"), dict) else {}
    stack, trace = (str(notes.get(key, "")) for key in ("nn_module_stack", "stack_trace"))
    space = target.removeprefix("torch.ops.").partition(".")[0]
    if space == "higher_order":
        hint = "Export the module with the branch or loop written out."
    elif target.startswith("torch.ops.") and space not in ("aten", "prim", "prims"):
        hint = "Export the module with PyTorch's own operators instead."
    else:
        hint = "Open the module itself as FILE.py:NAME, or export it without this call."
    message = f"{archive.path.name} calls {target}, which relascope does not run from a file."
    raise EngineError("operator", message, place_of(target, stack, trace), hint)


TORCHS = r"[/\\](?:(?:site|dist)-packages|pytorch)[/\\]torch[/\\]"
"""A pattern in the paths of torch's files, on any system."""
_FRAMES = re.compile(
    rf'File "((?!<)(?![^"\n]*{TORCHS})[^"\n]+)", line (\d+), in [^\n]*(?:\n {{4}}(\S[^\n]*))?'
)


def place_of(operator: str, stack: str, trace: str) -> str:
    """The place of an operator in a program, for an error's `where`: `stack` has the modules around
    it, as torch writes them ("key,path,type;…"), `trace` the lines of the model's source that led
    to it, outermost first."""
    path = stack.split(";")[-1].split(",")[1:2]
    where = f"{operator} in {path[0][:200]}" if path and path[0] else f"{operator} at the top"
    return at_line(where, lines_in(trace))


def lines_in(trace: str) -> list[tuple[str, str, str]]:
    """Files, lines and their texts in a traceback's text, outermost first, without torch's."""
    return _FRAMES.findall(trace)


def at_line(where: str, lines: Sequence[tuple[str, str, str]]) -> str:
    """A place with the last of these lines, if there are any."""
    return f"{where}, {file_line(*lines[-1][:2])}" if lines else where


def file_line(file: str, line: str | int) -> str:
    """A line of a file as people name it, "model.py:12"; the path may be of any system."""
    return visible(f"{PureWindowsPath(file).name}:{line}", keep="")
