"""Traces (`.pt`): a grammar of what torch writes checks their code before torch reads it.

TorchScript computes default arguments and constants of classes while it reads code, and folds
constants in bodies that never run. So only code as `torch.jit.save` writes it is let through:
values are computed only in bodies, and each call there is of an operator that a file may use, of a
function or method of the file, or of one of a few conversions. All that forward() runs is known
only after torch has read the code, so it is checked again before it runs
(`engine.pytorch.flat_trace`, with `engine.files.operators`).

Python's parser stands in for torch's own. `_LEXICON` allows only tokens that both read in the same
way: no comments, prefixes, continued lines, adjacent strings or whitespace other than spaces.
"""

import ast
import re

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.files.archive import MIB, Archive
from relascope.engine.files.operators import UNPACKED, allowed, schemas
from relascope.engine.files.pickles import PACKED, skeleton
from relascope.engine.files.script import PartRefused, dotted

_LEXICON = re.compile(
    r"""(?: \ ++ | \n
      | [A-Za-z_][A-Za-z_0-9]*+ (?!")
      | [0-9]++ (?:\.[0-9]*+)?+ (?:e[+-]?[0-9]++)?+ j?+ (?![\w.])
      | "(?: [^"\\\x00-\x1f\x7f] | \\[\\"'abfnrtv] | \\[0-3][0-7]{2} )*+" (?! \w | [\ \n]*+")
      | -> | \.(?=[A-Za-z_]) | [-+](?=[0-9a-z]) | =(?!=) | :(?!=) | [()\[\]{},]
    )*+""",
    re.VERBOSE,
)
_DEFINITIONS = re.compile(r"^(?=class |def )", re.MULTILINE)
_DEEPEST, _LONGEST = 60, 512 << 10
_PICKLES = ("constants.pkl", "data.pkl")
_BASES = ("", "Module", "NamedTuple", "Enum", "Interface", "ModuleInterface")
_LISTS = ("__parameters__", "__buffers__", "__annotations__")
_SPACES = ("torch", "ops", "CONSTANTS", "__torch__")
_TYPED = {"annotate": 2, "unchecked_cast": 2, "uninitialized": 1}
"""Functions whose first argument is a type: how many arguments they take."""
_CONVERSIONS = ("int", "float", "bool", "str")
_BUILTIN = (*_TYPED, *_CONVERSIONS, "isinstance", "getattr", "range", "sorted", "print", "fork")
_SPECIAL = re.compile(r"__(?!len__|contains__)\w+__")
"""Methods of modules that Python may call implicitly; containers have the two exceptions."""
_STATE = ("__setstate__", "__getstate__")
_HIDDEN = (*_STATE, "capsule")
"""Members that could make another object of one of PyTorch's own."""
_PACKING = tuple(f"quantized::linear_{n}{e}" for n in ("prepack", "unpack") for e in ("", "_fp16"))
"""Operators in methods of PyTorch's `LinearPackedParams` that no forward() runs."""


def check_code(archive: Archive) -> None:
    """Refuse (kind "file") a trace with code, constants or attributes that no trace should have."""
    members = {name.lower() for name in archive.sizes}
    if not members.issuperset(_PICKLES) or not any(m.startswith("code/") for m in members):
        raise EngineError("file", "This file is not a TorchScript trace.", archive.path.name)
    if "model.json" in members:
        raise archive.refused("model.json", "has a format that PyTorch dropped in 2019")
    code = [n for n in archive.sizes if n.lower().endswith(".py")]
    if sum(archive.sizes[n] for n in code) > 64 * MIB:
        raise archive.refused("code/", "has more than 64 MiB of text")
    for name in code:
        _check_text(archive, name, archive.text(name))
    for name in _PICKLES:
        skeleton(archive, name)
    for name in archive.sizes:
        if name.lower().endswith(".debug_pkl"):
            _check_places(archive, name)


def recorded_inputs(archive: Archive) -> tuple[TensorType, ...]:
    """Types of the inputs that a trace was taken with; empty if the file has none. torch writes
    them into the archive, without the values, and offers no way to read them."""
    if "traced_inputs.pkl" not in archive.sizes:
        return ()
    found, _ = skeleton(archive, "traced_inputs.pkl")
    types = found.get("forward", []) if isinstance(found, dict) else []
    known = isinstance(types, list | tuple) and all(isinstance(t, TensorType) for t in types)
    return tuple(types) if known else ()


def _check_places(archive: Archive, name: str) -> None:
    """Check the numbers by which torch looks up texts for its messages, unchecked."""
    made, parts = skeleton(archive, name)
    if not (isinstance(made, tuple) and made[:1] == ("FORMAT_WITH_STRING_TABLE",)):
        return
    for one in parts:
        if type(one) is not list and (type(one) is not tuple or len(one) != 2):
            continue
        numbers = one if type(one) is list else one[:1]
        if not all(0 <= n < len(made[1]) for n in numbers if isinstance(n, int)):
            raise archive.refused(name, "refers to texts that it does not have")


def _check_text(archive: Archive, name: str, text: str) -> None:
    """Refuse code that torch.jit.save does not write."""
    before, line = "", 1
    try:
        end = _LEXICON.match(text).end()  # type: ignore[union-attr]  # it also matches nothing
        if end < len(text):
            before, odd = text[:end], text[end:].partition("\n")[0][:20]
            raise PartRefused(None, f"has {odd!r}")
        if max(map(len, text.split("\n"))) > _LONGEST:
            raise PartRefused(None, f"or another is longer than {_LONGEST >> 10} KiB")
        for definition in _DEFINITIONS.split(text):  # the tree of 16 MiB at once takes 1 GiB
            _TraceGrammar().definitions(ast.parse(definition))
            before += definition
        return
    except PartRefused as wrong:
        line, why = getattr(wrong.at, "lineno", 1), wrong.why
    except (RecursionError, MemoryError):
        why = "is nested too deeply"
    except (SyntaxError, ValueError) as wrong:
        line, why = getattr(wrong, "lineno", None) or 1, "is not a statement"
    line += before.count("\n")
    hint = UNPACKED if "quantize" in why else ""
    raise archive.refused(name, f"is not code as torch writes it: line {line} {why}", hint)


class _TraceGrammar:
    """Checks a class or a function.

    Called names are looked up at the end of a function: a variable may hide a builtin, and one
    that is called must be a function of the file.
    """

    def __init__(self) -> None:
        self.methods: frozenset[str] = frozenset()
        self.packs = False
        self.values: set[str] = set()
        self.functions: set[str] = set()
        self.called: dict[str, ast.AST] = {}

    def definitions(self, tree: ast.Module) -> None:
        for one in tree.body:
            match one:
                case ast.ClassDef():
                    self.class_of_file(one)
                case ast.FunctionDef():
                    self.function(one)
                case ast.Import():  # torch skips imports and versions; PyTorch 1.3 wrote both
                    pass
                case ast.Assign([ast.Name("op_version_set")], ast.Constant(int())):
                    pass
                case _:
                    raise PartRefused(one, "is outside classes and functions")

    def class_of_file(self, one: ast.ClassDef) -> None:
        base = ".".join(".".join(dotted(b)) or "?" for b in one.bases)
        if base not in _BASES or one.keywords:
            raise PartRefused(one, "is a class of an unknown kind")
        self.methods = frozenset(f.name for f in one.body if isinstance(f, ast.FunctionDef))
        self.packs = one.name == "LinearPackedParams"
        for part in one.body:
            match part:
                case ast.FunctionDef(name) if base not in ("NamedTuple", "Enum"):
                    if name in _STATE or (base and _SPECIAL.fullmatch(name)):
                        raise PartRefused(part, f"defines {name}")
                    if "Interface" in base and not isinstance(part.body[0], ast.Pass):
                        raise PartRefused(part, "has a body in an interface")
                    self.function(part)
                case ast.AnnAssign(ast.Name(), kind, None):
                    self.type_of_value(kind)
                case ast.AnnAssign(ast.Name(), kind, value) if base in ("", "Module"):
                    self.type_of_value(kind)
                    self.expression(value, constant=True)
                case ast.Assign([ast.Name()], value) if base == "Enum":
                    self.expression(value, constant=True)
                case ast.Assign([ast.Name(name)], ast.List() as names) if name in _LISTS:
                    self.expression(names, constant=True)
                case ast.Assign(
                    [ast.Subscript(ast.Name("__annotations__"), ast.Constant(str()))], kind
                ):
                    self.type_of_value(kind)
                case _:
                    raise PartRefused(part, f"has {_line(part)} in a class")

    def function(self, one: ast.FunctionDef) -> None:
        self.values, self.functions, self.called = set(), set(), {}
        for place, argument in enumerate(one.args.args):
            if place or argument.arg != "self":
                self.bind(argument, argument.arg)
            if argument.annotation is not None:
                self.type_of_value(argument.annotation)
        for default in one.args.defaults:
            self.expression(default, constant=True)
        if one.returns is not None:
            self.type_of_value(one.returns)
        self.block(one.body)
        for name, call in self.called.items():
            if name in self.values or (name in _BUILTIN) == (name in self.functions):
                raise PartRefused(call, f"calls {name}, which is not a function")

    def block(self, body: list[ast.stmt], depth: int = 0) -> None:
        for one in body:
            inner: list[ast.stmt] = []
            match one:
                case ast.Assign([target], value):
                    self.expression(value)
                    self.target(target, function=dotted(value)[:1] == ("__torch__",))
                case ast.AnnAssign(ast.Name() as target, kind, ast.expr() as value):
                    self.type_of_value(kind)
                    self.expression(value)
                    self.target(target)
                case ast.Expr(ast.Call() as value) | ast.Return(ast.expr() as value):
                    self.expression(value)
                case ast.If(test, then, other):
                    self.expression(test)
                    inner = [*then, *other]
                case ast.While(test, inner, []):
                    self.expression(test)
                case ast.For(target, ast.Call(ast.Name("range"), [_], []) as turns, inner, []):
                    self.target(target)
                    self.expression(turns)
                case ast.With([ast.withitem(manager, name)], inner):
                    self.expression(manager)
                    if name is not None:
                        self.target(name)
                case ast.FunctionDef(name, ast.arguments([], []), inner, [], None):
                    self.bind(one, name)  # what `fork` runs
                case ast.Pass():
                    pass
                case _:
                    raise PartRefused(one, f"has {_line(one)}")
            if depth > _DEEPEST:
                raise PartRefused(one, "is nested too deeply")
            self.block(inner, depth + 1)

    def target(self, one: ast.expr, function: bool = False) -> None:
        match one:
            case ast.Name(name):
                self.bind(one, name, function)
            case ast.Tuple(parts):
                for part in parts:
                    self.target(part)
            case ast.Attribute():
                self.expression(one)
            case _:
                raise PartRefused(one, f"assigns to {_line(one)}")

    def bind(self, at: ast.AST, name: str, function: bool = False) -> None:
        # Methods of the class are called through "self", so it must be the instance.
        if name in _SPACES or (name == "self" and self.methods):
            raise PartRefused(at, f"has a variable called {name}")
        (self.functions if function else self.values).add(name)

    def type_of_value(self, one: ast.expr, depth: int = 0) -> None:
        """Check a type: names, with types in brackets."""
        match one:
            case ast.Name() | ast.Tuple([]):
                pass
            case ast.Attribute():
                if ast.unparse(one) not in PACKED:
                    self.path(one)
            case ast.Subscript(ast.Name(), ast.Tuple([_, *_] as parts)) if depth < _DEEPEST:
                for part in parts:
                    self.type_of_value(part, depth + 1)
            case ast.Subscript(ast.Name(), part) if depth < _DEEPEST:
                self.type_of_value(part, depth + 1)
            case _:
                raise PartRefused(one, f"has {_line(one)} as a type")

    def path(self, one: ast.expr) -> None:
        """Check the name of a constant, or of a class or function of the file."""
        names = dotted(one)
        own = names[:1] == ("__torch__",) and names[1:3] != ("torch", "classes")
        if not (own or (names[:1] == ("CONSTANTS",) and len(names) == 2)) or len(names) > _DEEPEST:
            raise PartRefused(one, f"names {_line(one)}")

    def expression(self, one: ast.expr | None, depth: int = 0, constant: bool = False) -> None:
        """Check an expression; a `constant` may compute nothing, because torch would compute it
        while it reads the file."""
        inner: list[ast.expr | None] = []
        match one:
            case None | ast.Constant():
                pass
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float()) | ast.Name("inf" | "nan")):
                pass
            case ast.BinOp(left, ast.Add() | ast.Sub(), ast.Constant(complex())):
                inner = [left]
            case ast.Name(name) if name in ("inf", "nan") or not (constant or name in _SPACES):
                pass
            case ast.Attribute() if dotted(one)[:1] in (("CONSTANTS",), ("__torch__",)):
                self.path(one)
            case ast.List(items) | ast.Tuple(items):
                inner = [*items]
            case ast.Dict(keys, values):
                inner = [*keys, *values]
            case ast.Call():
                inner = self.call(one, constant)
            case ast.Attribute(value, name) if not constant and name not in _HIDDEN:
                inner = [value]
            case ast.Subscript(value, ast.Slice(low, high, None)) if not constant:
                inner = [value, low, high]
            case ast.Subscript(value, index) if not constant and not isinstance(index, ast.Tuple):
                inner = [value, index]
            case _:
                raise PartRefused(one, f"has {_line(one)}" + " as a constant" * constant)
        if depth > _DEEPEST:
            raise PartRefused(one, "is nested too deeply")
        for part in inner:
            self.expression(part, depth + 1, constant)

    def call(self, one: ast.Call, constant: bool) -> list[ast.expr | None]:
        """Check what is called, and types among the arguments; returns the others."""
        given: list[ast.expr | None] = [*one.args, *(k.value for k in one.keywords)]
        names = dotted(one.func)
        if constant and names not in (("torch", "device"), ("annotate",)):
            raise PartRefused(one, f"computes {_line(one)} while it is read")
        match one.func, names:
            case _, ("torch", name) | ("torch", "autograd", name):
                self.operator(one, f"aten::{name}")
            case _, ("ops", space, name):
                self.operator(one, f"{space}::{name}")
            case _, ("__torch__", *_):
                self.path(one.func)
            case ast.Name(name), _:
                self.called.setdefault(name, one)
                match name, given:
                    case "isinstance", [subject, ast.expr() as kinds]:
                        for kind in kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]:
                            self.type_of_value(kind)
                        return [subject]
                    case "getattr", [subject, ast.Constant(str(text))] if not text.isidentifier():
                        return [subject]
                    case _, [ast.expr() as kind, *rest] if _TYPED.get(name) == len(given):
                        self.type_of_value(kind)
                        return rest
                if name in (*_TYPED, "isinstance", "getattr"):
                    raise PartRefused(one, f"has {_line(one)}")
            case ast.Attribute(value, name), _:
                if name in _HIDDEN:
                    raise PartRefused(one, f"calls {name}")
                own = isinstance(value, ast.Name) and value.id == "self" and name in self.methods
                if not own and schemas(f"aten::{name}"):  # a method of a tensor
                    self.operator(one, f"aten::{name}")
                given.append(value)
            case _:
                raise PartRefused(one, f"calls {_line(one.func)}")
        return given

    def operator(self, at: ast.AST, kind: str) -> None:
        if not (allowed(kind) or (self.packs and kind in _PACKING)):
            raise PartRefused(at, f"uses the operator {kind}")


def _line(one: ast.AST | None) -> str:
    return repr(ast.unparse(one).partition("\n")[0][:60]) if one is not None else "nothing"
