"""TVMScript is held against a grammar before any parser evaluates it."""

import ast

import pytest

from answers import refused
from relascope.engine.files.script import check_script

KNOWN = {"R.Tensor", "R.add", "R.const", "R.match_cast", "I.module_attrs", "R.function"}

PLAIN = """
from tvm.script import ir as I

metadata = tvm.ir.load_json("[1]")
n = TypeVar("n")

@I.ir_module
class Module:
    I.module_attrs({"a": 1, "b": [-2.5, True, None]})

    @R.function(private=True)
    def other(x: R.Tensor((2, n * 2), "float32")) -> R.Tensor((2, 4), "float32"):
        pass
        return x

    @R.function
    def main(x: R.Tensor((2, 4), dtype="float32")):
        with R.dataflow():
            y: R.Tensor((2, 4), dtype="float32") = R.add(x, metadata["ir.Constant"][0])
            z, w = cls.other(y), (x, y)[0]
            R.add(z, w)
        return z
"""


def checked(text):
    return check_script(text, lambda path: ".".join(path) in KNOWN, "model.py")


def test_a_module_is_written_anew_without_its_imports_and_a_function_is_one():
    script = checked(PLAIN)
    assert "import" not in script.text
    assert script.metadata == "[1]"
    head = "n = TypeVar('n')\n@I.ir_module\nclass Module:"
    assert script.text.startswith(head)
    assert checked(script.text).text == script.text
    assert checked(f'"""A module."""\n{PLAIN}').text == checked(PLAIN).text
    assert checked("@R.function\ndef main(x):\n    return x").metadata == ""


def function(body, given="x", head="@R.function"):
    return f"{head}\ndef main({given}):\n    {body}"


def kernel(body):
    return module(f"@T.prim_func\n    def k(x):\n        {body}")


def module(body="pass", head="@I.ir_module", name="class Module"):
    return f"{head}\n{name}:\n    {body}"


def test_the_hint_is_not_to_write_it_as_it_was_written():
    with refused(match="that a file may use", hint="before it was compiled") as caught:
        checked(function("return R.call_tir(x)"))
    assert "show_meta" not in caught.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("open('x')", "is neither a function nor a module"),
        ("", "holds 0 modules and functions"),
        (module() + "\n" + module(), "holds 2 modules and functions"),
        (module(name="class Module(Base)"), "has a base class"),
        (module("x = 1"), "is not a function"),
        (module(head="@I.ir_module(x)"), "has an argument that is not allowed"),
        (module(head="@I.ir_module(check_well_formed=f())"), "has an argument that is not"),
        (module(head="@evil"), "is not a decorator"),
        ("class Module:\n    pass", "does not have I.ir_module as its only"),
        (kernel("import os"), "is a statement that is not allowed"),
        (kernel("T.evaluate(T.call_extern('int32', 'system'))"), "is not a Relax operator or type"),
        (kernel("T.macro(x)"), "is not a Relax operator or type"),
        (kernel("y = (1, 2)"), "is not an assignment that"),
        (kernel("y = 'a'"), "is not an assignment that"),
        (kernel("for i in x: pass"), "is a statement that is not allowed"),
        (kernel("for i in range(__import__('os').getpid()): pass"), "is not a Relax operator"),
        (kernel("with open('f'): pass"), "is not a variable"),
        (kernel("x[0] = x.__class__"), "is not a Relax operator or type"),
        (kernel("x[0] = [1] * 9 << 9"), "computes with something other than"),
        ("n = R.add = TypeVar('n')\n", "is neither a function nor a module"),
        ("R.x = metadata = tvm.ir.load_json('[]')\n", "is neither a function nor a module"),
        ("metadata = run('[]')\n", "is not metadata as TVM writes it"),
        ("metadata = tvm.ir.load_json(x)\n", "is not metadata as TVM writes it"),
        (function("return x", "x, *more"), "has arguments that are not allowed"),
        (function("return x", "x=1"), "has arguments that are not allowed"),
        (function("return x", "R"), "is a reserved name"),
        (function("return x", "__x"), "is not a variable name"),
        (function("import os"), "is a statement that is not allowed"),
        (function("for i in x: pass"), "is a statement that is not allowed"),
        (function("with open('f'): pass"), "is not a dataflow block"),
        (function("with R.dataflow(open('f')): pass"), "is not a dataflow block"),
        (function("with R.dataflow() as y: pass"), "is not a dataflow block"),
        (kernel("for x[0] in range(3): pass"), "is not a variable"),
        (kernel("x[0], y = x"), "is not a variable"),
        (function("x.y = x"), "is not a variable"),
        (function("if x:\n        y = x\n    return x"), "is a statement that is not allowed"),
        (
            function("if f():\n        y = x\n    else:\n        y = x\n    return x"),
            "is not a var",
        ),
        (function("if x:\n        import os\n    else:\n        y = x"), "is a statement that is"),
        (function("return y"), "is not a variable"),
        (function("return f(x)(x)"), "calls something other than an operator"),
        (function("return R.add(**x)"), "has arguments that are not allowed"),
        (function("return R.add(x, _a=x)"), "has arguments that are not allowed"),
        (function("return R.evil(x)"), "is not a Relax operator or type"),
        (function("return x.__class__"), "is not a Relax operator or type"),
        (function("return [x for x in x]"), "is an expression that is not allowed"),
        (function("return 'a' * 1000000000"), "computes with something other than"),
        (function("return [x] * 1000000000"), "computes with something other than"),
        (function("return {**x}"), "has an item without a key"),
        (function("return 1 << 9"), "is an expression that is not allowed"),
        (function(f"return {1 << 64}"), "is a number of more than 64 bits"),
        (function("return 1j"), "is not a number"),
        (function("return '__import__'"), "is a text, but not a dtype"),
        (function("return '9**9'"), "is a text, but not a dtype"),
        (function(f"return {'-' * 70}x"), "is nested too deeply"),
        (function(f"return {'(' * 300}x{')' * 300}"), "too"),
        ("def :", "line 1: invalid syntax"),
        ("\0", "null bytes"),
    ],
)
def test_what_is_no_plain_computation_is_refused_with_its_line(text, why):
    with refused("file", "^Cannot read model.py as TVMScript: ", says=why):
        checked(text)


def test_parameters_of_types_are_refused_as_python_3_12_reads_them(monkeypatch):
    tree = ast.parse(function("return x"))
    tree.body[0].type_params = [ast.Name("T")]  # `def main[T: run()](x)`, whose bound TVM would see
    with monkeypatch.context() as patched, refused("file", "has type parameters"):
        patched.setattr(ast, "parse", lambda text: tree)
        checked("")
