"""Relax's text of a small program, as the documentation shows it."""

import ast
from typing import Any

from tvm import relax

from relascope.engine.protocol.results import FunctionText
from relascope.engine.relax.draw.to_text import function_text
from relascope.passes.relax.ir.program import RelaxProgram

_MARKS = {"R.output", "T.reads", "T.writes"}  # what a block returns, a loop nest reads and writes
_UNSET = {None, "void"}  # values of options that are not set
_DEFAULTS = {
    "strides": "[1, 1]",
    "padding": "[0, 0, 0, 0]",
    "dilation": "[1, 1]",
    "groups": "1",
    "data_layout": "'NCHW'",
    "kernel_layout": "'OIHW'",
    "keepdims": "False",
    "epsilon": "1e-05",
    "center": "True",
    "scale": "True",
    "momentum": "0.1",
}
_LONGEST = 100  # characters of what a kernel stores in one place


def example_text(program: RelaxProgram) -> tuple[FunctionText, ...]:
    """The functions of a program, "main" last, without types, default options, block marks and a
    return of the last line; a very long expression of a kernel is "..."."""
    functions = {str(v.name_hint): f for v, f in program.mod.functions.items()}
    names = sorted(functions, key=lambda name: (name == "main", name))
    return tuple(_one(name, functions[name]) for name in names)


def _one(called: str, function: Any) -> FunctionText:
    text = function_text(function, called)
    (definition,) = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))
    short = _Shorter().visit(definition)
    short.decorator_list, short.returns = [], None
    match short.body:
        case [*_, ast.Assign(targets=[ast.Name(id=bound)]), ast.Return(value=ast.Name(id=name))]:
            if bound == name:
                short.body.pop()
    head, *lines = ast.unparse(ast.fix_missing_locations(short)).splitlines()
    kernel = not isinstance(function, relax.Function)
    return FunctionText(called, head, tuple(line[4:] for line in lines), kernel=kernel, indent=4)


class _Shorter(ast.NodeTransformer):
    """Removes from TVM's script what readers of a small program do not need."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        if node.value is None:
            return None
        return ast.Assign([node.target], self.visit(node.value))

    def visit_With(self, node: ast.With) -> ast.stmt | list[ast.stmt]:
        inner = self.generic_visit(node)
        assert isinstance(inner, ast.With)
        return inner.body if _called(node.items[0].context_expr) == "R.dataflow" else inner

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        if isinstance(node.targets[0], ast.Subscript) and len(ast.unparse(node.value)) > _LONGEST:
            return ast.Assign(node.targets, ast.Constant(...))
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        if _called(node.value) in _MARKS:
            return None
        match node.value:
            case ast.Call(args=[ast.Dict() as said]) as call if _called(call) == "T.func_attr":
                pairs = [
                    (k, v)
                    for k, v in zip(said.keys, said.values, strict=True)
                    if ast.unparse(k or v) != "'tirx.noalias'"
                ]
                call.args = [ast.Dict([k for k, _ in pairs], [v for _, v in pairs])]
                return ast.Expr(call) if pairs else None
        return ast.Expr(self.visit(node.value))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if _called(node) == "T.int64":
            return node.args[0]
        arguments = [self.visit(a) for a in node.args]
        if _called(node) == "R.const":
            arguments = arguments[:1]
        layout = [ast.unparse(k.value) for k in node.keywords if k.arg == "data_layout"]
        keywords = [
            ast.keyword(k.arg, self.visit(k.value))
            for k in node.keywords
            if not (isinstance(k.value, ast.Constant) and k.value.value in _UNSET)
            and k.arg != "out_ty"
            and ast.unparse(k.value) != _DEFAULTS.get(k.arg or "")
            and not (k.arg == "out_layout" and [ast.unparse(k.value)] == layout)
        ]
        return ast.Call(node.func, arguments, keywords)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """`metadata["ir.GenericConst"][0]` is a constant of the program."""
        match node.value:
            case ast.Subscript(value=ast.Name(id="metadata")):
                return ast.Subscript(ast.Name("constant"), node.slice)
        return self.generic_visit(node)  # type: ignore[return-value]


def _called(node: ast.expr) -> str:
    """What an expression calls ("R.output"), or ""."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""
