"""TVMScript, held against a strict grammar before TVM's parser sees it.

That parser evaluates each expression as Python. So only these may stand in a text: calls of Relax's
own operators and types by their names, on variables, numbers, short plain texts, and tuples, lists
and maps of such. The text that is handed on is written anew from what was checked.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from relascope.core.errors import EngineError

_DEEPEST = 60
_PLAIN = re.compile(r"(?!.*__)(?!.*\*\*)[\w ,.:<>*+/-]*")
"""Texts: dtypes, layouts, names, einsum's equations. A dimension written as text is evaluated."""
_HINT = "Write it with mod.script(show_meta=True), or save it with tvm.ir.save_json."
_EARLIER = "Give the module as it was before it was compiled."
_OPTIONS = ("private", "pure", "check_well_formed", "s_tir")
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_OF_KERNELS = (ast.Div, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor)
_KERNEL = ("T", "prim_func")


@dataclass
class Script:
    """A checked text.

    Args:
        text: of the module alone, without imports.
        metadata: TVM's JSON of the constants that it refers to; "" where there are none.
    """

    text: str
    metadata: str


@dataclass
class _ScriptGrammar:
    """Checks one text.

    Args:
        known: whether a path such as ("R", "nn", "relu") is an operator or type of Relax.
        bound: names of variables and functions.
        module_names: names of the module itself, in its own functions.
        kernel: whether what is checked is the inside of a kernel.
    """

    known: Callable[[tuple[str, ...]], bool]
    bound: set[str] = field(default_factory=set)
    module_names: set[str] = field(default_factory=lambda: {"cls"})
    kernel: bool = False

    def module(self, tree: ast.Module) -> Script:
        metadata, found, sizes = "", [], []
        docstring = ast.get_docstring(tree, clean=False) is not None
        for one in tree.body[docstring:]:
            if isinstance(one, ast.ImportFrom | ast.Import):
                continue  # not run: names mean what they mean here
            if isinstance(one, ast.Assign) and _names(one.targets) == ["metadata"]:
                metadata = self.metadata(one.value)
            elif isinstance(one, ast.Assign) and _is_size(one.value):
                self.target(one.targets[0])
                sizes.append(ast.unparse(one))
            elif isinstance(one, ast.ClassDef | ast.FunctionDef):
                found.append(one)
            else:
                raise _Refused(one, "is no function and no module")
        if len(found) != 1:
            raise _Refused(None, f"holds {len(found)} modules and functions, not one")
        (whole,) = found
        if isinstance(whole, ast.ClassDef):
            self.decorated(whole, ("I", "ir_module"))
            if whole.bases or whole.keywords:
                raise _Refused(whole, "has a base class")
            self.module_names.add(whole.name)
            self.bound |= {"cls", *(f.name for f in whole.body if isinstance(f, ast.FunctionDef))}
            for inner in whole.body:
                if isinstance(inner, ast.FunctionDef):
                    self.function(inner)
                elif isinstance(inner, ast.Expr) and any(
                    _is_call(inner.value, "I", n) for n in ("module_attrs", "module_global_infos")
                ):
                    self.expression(inner.value, 0)
                elif not isinstance(inner, ast.Pass):
                    raise _Refused(inner, "is no function")
        else:
            self.function(whole)
        return Script("\n".join([*sizes, ast.unparse(whole)]), metadata)

    def metadata(self, value: ast.expr) -> str:
        inner = value.args if isinstance(value, ast.Call) else []
        path = dotted(value.func) if isinstance(value, ast.Call) else ()
        if path[-1:] != ("load_json",) or len(inner) != 1 or not isinstance(inner[0], ast.Constant):
            raise _Refused(value, "is not how metadata is written")
        return str(inner[0].value)

    def decorated(self, one: ast.ClassDef | ast.FunctionDef, wanted: tuple[str, str]) -> None:
        for decorator in one.decorator_list:
            path = _decorator(decorator)
            if path != wanted:
                raise _Refused(decorator, "is no decorator of a module or function of Relax")
            given = decorator.keywords if isinstance(decorator, ast.Call) else []
            plain = all(k.arg in _OPTIONS and isinstance(k.value, ast.Constant) for k in given)
            if not plain or (isinstance(decorator, ast.Call) and decorator.args):
                raise _Refused(decorator, "has an argument that it does not take")
        if len(one.decorator_list) != 1:
            raise _Refused(one, f"is not decorated with {'.'.join(wanted)} alone")

    def function(self, one: ast.FunctionDef) -> None:
        self.kernel = _KERNEL in map(_decorator, one.decorator_list)
        self.decorated(one, _KERNEL if self.kernel else ("R", "function"))
        self.name(one.name, one)
        given = one.args
        if given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg or given.defaults:
            raise _Refused(one, "has arguments that are not plain")
        before = set(self.bound)
        for argument in given.args:
            self.bind(argument.arg, argument)
            if argument.annotation is not None:
                self.expression(argument.annotation, 0)
        if one.returns is not None:
            self.expression(one.returns, 0)
        self.block(one.body)
        self.bound = before

    def block(self, body: list[ast.stmt]) -> None:
        for one in body:
            if self.kernel and self.loops(one):
                continue
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=module)) if (
                    module in self.module_names
                ):
                    self.name(name, one)
                    self.module_names.add(name)
                case ast.Assign(targets=[target], value=value):
                    self.expression(value, 0)
                    self.target(target)
                case ast.AnnAssign(target=target, annotation=kind, value=ast.expr() as value):
                    self.expression(kind, 0)
                    self.expression(value, 0)
                    self.target(target)
                case ast.Expr(value=ast.Call() as call):
                    self.expression(call, 0)
                case ast.Return(value=ast.expr() as value):
                    self.expression(value, 0)
                case ast.With(items=[ast.withitem(context_expr=call, optional_vars=None)]):
                    if not _is_call(call, "R", "dataflow"):
                        raise _Refused(one, "is no dataflow block")
                    self.block(one.body)
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case ast.FunctionDef(name=name):
                    self.bind(name, one)
                    self.function(one)
                    self.kernel = False
                case ast.If(test=test, body=then, orelse=[_, *_] as otherwise):
                    self.expression(test, 0)
                    self.block(then)
                    self.block(otherwise)
                case _:
                    raise _Refused(one, "is a statement that a module has no use for here")

    def loops(self, one: ast.stmt) -> bool:
        """Whether it is a statement that kernels alone have, checked."""
        match one:
            case ast.For(target=target, iter=ast.Call() as over, body=body, orelse=[]):
                if dotted(over.func) == ("range",) and not over.keywords:
                    for argument in over.args:
                        self.expression(argument, 0)
                else:
                    self.expression(over, 0)
                self.target(target)
                self.block(body)
            case ast.With(
                items=[ast.withitem(context_expr=ast.Call() as call, optional_vars=name)]
            ):
                self.expression(call, 0)
                if name is not None:
                    self.target(name)
                self.block(one.body)
            case ast.If(test=test, body=body, orelse=otherwise):
                self.expression(test, 0)
                self.block(body)
                self.block(otherwise)
            case ast.Assign(targets=[ast.Subscript() as place], value=value):
                self.expression(place, 0)
                self.expression(value, 0)
            case ast.AugAssign(target=ast.Subscript() as place, op=op, value=value) if isinstance(
                op, _OPERATORS + _OF_KERNELS
            ):
                self.expression(place, 0)
                self.expression(value, 0)
            case ast.Assign(value=ast.Tuple() | ast.List() | ast.Constant(value=str())):
                raise _Refused(one, "is no assignment of a kernel's")  # a tuple may be repeated
            case ast.AnnAssign(target=target, annotation=kind, value=None):
                self.expression(kind, 0)
                self.target(target)
            case _:
                return False
        return True

    def target(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            for one in target.elts:
                self.target(one)
        elif isinstance(target, ast.Name):
            self.bind(target.id, target)
        else:
            raise _Refused(target, "is no variable")

    def bind(self, name: str, at: ast.AST) -> None:
        if name in ("R", "I", "T", "cls", "metadata"):
            raise _Refused(at, "is the name of something else")
        self.name(name, at)
        self.bound.add(name)

    def name(self, name: str, at: ast.AST) -> None:
        if name.startswith("__") or not name.isidentifier() or len(name) > 1000:
            raise _Refused(at, "is no name of a variable")

    def expression(self, one: ast.expr, depth: int) -> None:
        if depth > _DEEPEST:
            raise _Refused(one, "is nested too deeply")
        inner: list[ast.expr | None] = []
        match one:
            case ast.Constant(value=value):
                self.constant(one, value)
            case ast.Name(id=name):
                if name not in self.bound:
                    raise _Refused(one, "is no variable")
            case ast.Attribute():
                self.attribute(one)
            case ast.Call(func=function, args=args, keywords=keywords):
                if not isinstance(function, ast.Attribute | ast.Name):
                    raise _Refused(one, "calls what is no operator")
                if any(k.arg is None or k.arg.startswith("_") for k in keywords):
                    raise _Refused(one, "has arguments that are not plain")
                inner = [function, *args, *(k.value for k in keywords)]
            case ast.Subscript(value=ast.Name(id="metadata"), slice=ast.Constant(value=str())):
                pass
            case ast.Subscript(value=value, slice=ast.Constant(value=int())):
                inner = [value]
            case ast.Subscript(value=ast.Name() as value, slice=place) if self.kernel:
                inner = [value, *(place.elts if isinstance(place, ast.Tuple) else [place])]
            case ast.Subscript(value=ast.Attribute() as value, slice=kind) if (
                self.kernel and dotted(value) == ("T", "let")
            ):
                inner = [kind]
            case ast.Slice(lower=lower, upper=upper, step=None) if self.kernel:
                inner = [bound for bound in (lower, upper) if bound is not None]
            case ast.Compare(left=left, comparators=others):
                inner = [left, *others]
            case ast.BoolOp(values=values) if self.kernel:
                inner = list(values)
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand) if self.kernel:
                inner = [operand]
            case ast.Tuple(elts=items) | ast.List(elts=items):
                inner = list(items)
            case ast.Dict(keys=keys, values=values):
                inner = [*keys, *values]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = [operand]
            case ast.BinOp(left=left, op=operator, right=right) if isinstance(
                operator, _OPERATORS + (_OF_KERNELS if self.kernel else ())
            ):
                # A text or a list that is repeated is a bomb.
                parts = (left, right)
                if any(isinstance(p, ast.Tuple | ast.List) or _is_text(p) for p in parts):
                    raise _Refused(one, "computes with what is no number")
                inner = list(parts)
            case _:
                raise _Refused(one, "is an expression that a module has no use for here")
        for part in inner:
            if part is None:
                raise _Refused(one, "has an item without a key")
            self.expression(part, depth + 1)

    def constant(self, one: ast.AST, value: object) -> None:
        if isinstance(value, str):
            if len(value) > 1000 or not _PLAIN.fullmatch(value):
                raise _Refused(one, "is a text that is no dtype, layout or name")
        elif isinstance(value, int) and not isinstance(value, bool):
            if abs(value) >= 1 << 64:
                raise _Refused(one, "is a number of more than 64 bits")
        elif not isinstance(value, bool | float | None):
            raise _Refused(one, "is no number")

    def attribute(self, one: ast.Attribute) -> None:
        path = dotted(one)
        if len(path) == 2 and path[0] in self.module_names and path[1] in self.bound:
            return
        if path[:1] in (("R",), ("I",), ("T",)) and self.known(path):
            return
        raise _Refused(one, "is no operator or type of Relax that a file may use", _EARLIER)


class _Refused(Exception):
    """A part of the text that the grammar does not have, why, and what to do."""

    def __init__(self, at: ast.AST | None, why: str, hint: str = _HINT) -> None:
        super().__init__(why)
        self.at, self.why, self.hint = at, why, hint


def check_script(text: str, known: Callable[[tuple[str, ...]], bool], name: str) -> Script:
    """TVMScript of a Relax module as TVM's parser may read it.

    Args:
        known: whether a path such as ("R", "nn", "relu") is an operator or type.
        name: of the file.

    Raises:
        EngineError: kind "file"; names the line.
    """
    own = f" Your own code is run as {name}:NAME." if name.endswith(".py") else ""
    hint = _HINT + own
    try:
        return _ScriptGrammar(known).module(ast.parse(text))
    except _Refused as wrong:
        line = getattr(wrong.at, "lineno", 0)
        what = ast.unparse(wrong.at).strip().splitlines()[0][:60] if wrong.at else "it"
        where = f"line {line}: {what!r}" if line else what
        message = f"{name} is not read as TVMScript: {where} {wrong.why}."
        place = f"{name}:{line}" if line else name
        raise EngineError("file", message, place, wrong.hint + own) from wrong
    except (RecursionError, MemoryError) as wrong:
        message = f"{name} is not read as TVMScript: it is nested too deeply."
        raise EngineError("file", message, name, hint) from wrong
    except (SyntaxError, ValueError) as wrong:
        said = getattr(wrong, "msg", str(wrong))
        message = f"{name} is not read as TVMScript: line {getattr(wrong, 'lineno', 1)}: {said}."
        raise EngineError("file", message, name, hint) from wrong


def dotted(one: ast.AST) -> tuple[str, ...]:
    """The names of a dotted path; empty where it is none."""
    names: list[str] = []
    while isinstance(one, ast.Attribute):
        names.append(one.attr)
        one = one.value
    return (one.id, *reversed(names)) if isinstance(one, ast.Name) else ()


def _decorator(one: ast.expr) -> tuple[str, ...]:
    return dotted(one.func if isinstance(one, ast.Call) else one)


def _names(targets: list[ast.expr]) -> list[str]:
    return [t.id for t in targets if isinstance(t, ast.Name)]


def _is_call(one: ast.expr, *path: str) -> bool:
    return isinstance(one, ast.Call) and dotted(one.func) == path


def _is_size(one: ast.expr) -> bool:
    """Whether it is TypeVar("n"), which says that n is a size that is left open."""
    match one:
        case ast.Call(func=ast.Name(id="TypeVar"), args=[ast.Constant(value=str(n))], keywords=[]):
            return n.isidentifier()
    return False


def _is_text(one: ast.expr) -> bool:
    return isinstance(one, ast.Constant) and isinstance(one.value, str)
