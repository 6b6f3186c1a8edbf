"""TVMScript, checked by a strict grammar before TVM's parser sees it.

That parser evaluates each expression as Python. So a text may only have calls of Relax's own
operators and types by name, on variables, numbers, short plain texts, and tuples, lists and maps of
these. TVM gets a new text, written from what was checked.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from relascope.core.errors import EngineError

_DEEPEST = 60
_PLAIN = re.compile(r"(?!.*__)(?!.*\*\*)(?:(?<![\w.])T\.(?:max|min)\(|[\w ,.:<>*+/)-])*")
"""Texts: dtypes, layouts, names, einsum's equations. A dimension written as text is evaluated."""
_HINT = "Write it with mod.script(show_meta=True), or save it with tvm.ir.save_json."
_EARLIER = "Open the module as it was before it was compiled."
_OPTIONS = ("private", "pure", "check_well_formed", "s_tir")
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_OF_KERNELS = (ast.Div, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor)
_KERNEL = ("T", "prim_func")
_ABOUT = (("I", "module_attrs"), ("I", "module_global_infos"))


class PartRefused(Exception):
    """A part of a text that the grammar does not allow: where, why, and a hint if it is special."""

    def __init__(self, at: ast.AST | None, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.at, self.why, self.hint = at, why, hint


@dataclass
class _ScriptGrammar:
    """Checks one text: `knows` tells operators and types of Relax, `bound` has the names of
    variables and functions, `module_names` those of the module itself; `kernel` says whether this
    is inside one."""

    knows: Callable[[tuple[str, ...]], bool]
    bound: set[str] = field(default_factory=set)
    module_names: set[str] = field(default_factory=lambda: {"cls"})
    kernel: bool = False

    def module(self, tree: ast.Module) -> tuple[str, str]:
        metadata, found, sizes = "", [], []
        docstring = ast.get_docstring(tree, clean=False) is not None
        for one in tree.body[docstring:]:
            match one:
                case ast.ImportFrom() | ast.Import():
                    pass  # not run: names have fixed meanings here
                case ast.Assign([ast.Name("metadata")], value):
                    metadata = self.metadata(value)
                case ast.Assign([target], value) if _is_size(value):
                    self.target(target)
                    sizes.append(ast.unparse(one))
                case ast.ClassDef() | ast.FunctionDef():
                    found.append(one)
                case _:
                    raise PartRefused(one, "is neither a function nor a module")
        if len(found) != 1:
            raise PartRefused(None, f"holds {len(found)} modules and functions, not one")
        (whole,) = found
        if isinstance(whole, ast.ClassDef):
            self.decorated(whole, ("I", "ir_module"))
            if whole.bases or whole.keywords:
                raise PartRefused(whole, "has a base class")
            self.module_names.add(whole.name)
            self.bound |= {"cls", *(f.name for f in whole.body if isinstance(f, ast.FunctionDef))}
            for inner in whole.body:
                match inner:
                    case ast.FunctionDef():
                        self.function(inner)
                    case ast.Expr(ast.Call(called) as call) if dotted(called) in _ABOUT:
                        self.expression(call)
                    case ast.Pass():
                        pass
                    case _:
                        raise PartRefused(inner, "is not a function")
        else:
            self.function(whole)
        return "\n".join([*sizes, ast.unparse(whole)]), metadata

    def metadata(self, value: ast.expr) -> str:
        inner = value.args if isinstance(value, ast.Call) else []
        path = dotted(value.func) if isinstance(value, ast.Call) else ()
        if path[-1:] != ("load_json",) or len(inner) != 1 or not isinstance(inner[0], ast.Constant):
            raise PartRefused(value, "is not metadata as TVM writes it")
        return str(inner[0].value)

    def decorated(self, one: ast.ClassDef | ast.FunctionDef, wanted: tuple[str, str]) -> None:
        for decorator in one.decorator_list:
            path = _decorator(decorator)
            if path != wanted:
                raise PartRefused(decorator, "is not a decorator of a Relax module or function")
            given = decorator.keywords if isinstance(decorator, ast.Call) else []
            plain = all(k.arg in _OPTIONS and isinstance(k.value, ast.Constant) for k in given)
            if not plain or (isinstance(decorator, ast.Call) and decorator.args):
                raise PartRefused(decorator, "has an argument that is not allowed")
        if getattr(one, "type_params", ()):  # of Python 3.12
            raise PartRefused(one, "has type parameters")
        if len(one.decorator_list) != 1:
            raise PartRefused(one, f"does not have {'.'.join(wanted)} as its only decorator")

    def function(self, one: ast.FunctionDef) -> None:
        self.kernel = _KERNEL in map(_decorator, one.decorator_list)
        self.decorated(one, _KERNEL if self.kernel else ("R", "function"))
        self.name(one.name, one)
        given = one.args
        if given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg or given.defaults:
            raise PartRefused(one, "has arguments that are not allowed")
        before = set(self.bound)
        for argument in given.args:
            self.bind(argument.arg, argument)
            if argument.annotation is not None:
                self.expression(argument.annotation)
        if one.returns is not None:
            self.expression(one.returns)
        self.block(one.body)
        self.bound = before

    def block(self, body: list[ast.stmt]) -> None:
        for one in body:
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=module)) if (
                    module in self.module_names
                ):
                    self.name(name, one)
                    self.module_names.add(name)
                case ast.Assign(targets=[target], value=value):
                    self.expression(value)
                    if self.kernel and isinstance(target, ast.Subscript):
                        self.expression(target)
                    elif self.kernel and _repeats(value):
                        raise PartRefused(one, "is not an assignment that a kernel may have")
                    else:
                        self.target(target)
                case ast.AnnAssign(target=target, annotation=kind, value=value) if (
                    value is not None or self.kernel
                ):
                    self.expression(kind)
                    if value is not None:
                        self.expression(value)
                    self.target(target)
                case ast.AugAssign(target=ast.Subscript() as place, op=op, value=value) if (
                    self.kernel and isinstance(op, _OPERATORS + _OF_KERNELS)
                ):
                    self.expression(place)
                    self.expression(value)
                case ast.Expr(value=ast.Call() as call):
                    self.expression(call)
                case ast.Return(value=ast.expr() as value):
                    self.expression(value)
                case ast.With(items=[ast.withitem(ast.expr() as call, name)]):
                    if self.kernel and isinstance(call, ast.Call):
                        self.expression(call)
                        if name is not None:
                            self.target(name)
                    elif name is not None or ast.unparse(call) != "R.dataflow()":
                        raise PartRefused(one, "is not a dataflow block")
                    self.block(one.body)
                case ast.For(target=target, iter=ast.Call() as over, body=inner, orelse=[]) if (
                    self.kernel
                ):
                    counts = dotted(over.func) == ("range",) and not over.keywords
                    for part in over.args if counts else [over]:
                        self.expression(part)
                    self.target(target)
                    self.block(inner)
                case ast.If(test=test, body=then, orelse=otherwise) if otherwise or self.kernel:
                    self.expression(test)
                    self.block(then)
                    self.block(otherwise)
                case ast.FunctionDef(name=name):
                    self.bind(name, one)
                    self.function(one)
                    self.kernel = False
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case _:
                    raise PartRefused(one, "is a statement that is not allowed here")

    def target(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            for one in target.elts:
                self.target(one)
        elif isinstance(target, ast.Name):
            self.bind(target.id, target)
        else:
            raise PartRefused(target, "is not a variable")

    def bind(self, name: str, at: ast.AST) -> None:
        if name in ("R", "I", "T", "cls", "metadata"):
            raise PartRefused(at, "is a reserved name")
        self.name(name, at)
        self.bound.add(name)

    def name(self, name: str, at: ast.AST) -> None:
        if name.startswith("__") or not name.isidentifier() or len(name) > 1000:
            raise PartRefused(at, "is not a variable name")

    def expression(self, one: ast.expr, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise PartRefused(one, "is nested too deeply")
        inner = [part for part in ast.iter_child_nodes(one) if isinstance(part, ast.expr)]
        match one:
            case ast.Constant(value=value):
                self.constant(one, value)
            case ast.Name(id=name):
                if name not in self.bound:
                    raise PartRefused(one, "is not a variable")
            case ast.Attribute():
                self.attribute(one)
                inner = []
            case ast.Call(func=function, keywords=keywords):
                if not isinstance(function, ast.Attribute | ast.Name):
                    raise PartRefused(one, "calls something other than an operator")
                if any(k.arg is None or k.arg.startswith("_") for k in keywords):
                    raise PartRefused(one, "has arguments that are not allowed")
                inner += [k.value for k in keywords]
            case ast.Subscript(value=ast.Name(id="metadata"), slice=ast.Constant(value=str())):
                inner = []
            case ast.Subscript(value=value, slice=ast.Constant(value=int())):
                inner = [value]
            case ast.Subscript(value=ast.Name() as value, slice=place) if self.kernel:
                inner = [value, *(place.elts if isinstance(place, ast.Tuple) else [place])]
            case ast.Subscript(ast.Attribute(ast.Name("T"), "let"), kind) if self.kernel:
                inner = [kind]
            case ast.Compare() | ast.Tuple() | ast.List() | ast.UnaryOp(op=ast.USub()):
                pass
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not() | ast.Invert()) if self.kernel:
                pass
            case ast.Slice(step=None) if self.kernel:
                pass
            case ast.Dict(keys=keys):
                if None in keys:
                    raise PartRefused(one, "has an item without a key")
            case ast.BinOp(op=operator) if isinstance(
                operator, _OPERATORS + (_OF_KERNELS if self.kernel else ())
            ):
                if any(map(_repeats, inner)):
                    raise PartRefused(one, "computes with something other than numbers")
            case _:
                raise PartRefused(one, "is an expression that is not allowed here")
        for part in inner:
            self.expression(part, depth + 1)

    def constant(self, one: ast.AST, value: object) -> None:
        if isinstance(value, str):
            if len(value) > 1000 or not _PLAIN.fullmatch(value):
                raise PartRefused(one, "is a text, but not a dtype, layout or name")
        elif isinstance(value, int) and not isinstance(value, bool):
            if abs(value) >= 1 << 64:
                raise PartRefused(one, "is a number of more than 64 bits")
        elif not isinstance(value, bool | float | None):
            raise PartRefused(one, "is not a number")

    def attribute(self, one: ast.Attribute) -> None:
        path = dotted(one)
        if len(path) == 2 and path[0] in self.module_names and path[1] in self.bound:
            return
        if path[:1] in (("R",), ("I",), ("T",)) and self.knows(path):
            return
        raise PartRefused(one, "is not a Relax operator or type that a file may use", _EARLIER)


def check_script(text: str, knows: Callable[[tuple[str, ...]], bool], name: str) -> tuple[str, str]:
    """Check a Relax module's TVMScript of the file `name`; returns it as TVM's parser may read it,
    without imports, and TVM's JSON of the constants that it refers to, or "". `knows` tells whether
    a path such as ("R", "nn", "relu") is an operator or type. A refusal (kind "file") names the
    line."""
    place, hint = name, _HINT
    try:
        return _ScriptGrammar(knows).module(ast.parse(text))
    except PartRefused as wrong:
        why, hint, line = f"it {wrong.why}", wrong.hint or _HINT, getattr(wrong.at, "lineno", 0)
        if wrong.at is not None and line:
            what = ast.unparse(wrong.at).strip().splitlines()[0][:60]
            why, place = f"line {line}: {what!r} {wrong.why}", f"{name}:{line}"
    except (RecursionError, MemoryError):
        why = "it is nested too deeply"
    except (SyntaxError, ValueError) as wrong:
        why = f"line {getattr(wrong, 'lineno', 1)}: {getattr(wrong, 'msg', wrong)}"
    hint += f" To run your own code, open {name}:NAME." if name.endswith(".py") else ""
    raise EngineError("file", f"Cannot read {name} as TVMScript: {why}.", place, hint)


def dotted(node: ast.AST) -> tuple[str, ...]:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def _decorator(one: ast.expr) -> tuple[str, ...]:
    return dotted(one.func if isinstance(one, ast.Call) else one)


def _is_size(one: ast.expr) -> bool:
    """Whether it is TypeVar("n"), which declares n as an open size."""
    match one:
        case ast.Call(func=ast.Name(id="TypeVar"), args=[ast.Constant(value=str(n))], keywords=[]):
            return n.isidentifier()
    return False


def _repeats(one: ast.expr) -> bool:
    """Whether it is a text or a list, which a large factor makes a bomb."""
    text = isinstance(one, ast.Constant) and isinstance(one.value, str)
    return text or isinstance(one, ast.Tuple | ast.List)
