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
        ("open('x')", "is no function and no module"),
        ("", "holds 0 modules and functions"),
        (module() + "\n" + module(), "holds 2 modules and functions"),
        (module(name="class Module(Base)"), "has a base class"),
        (module("x = 1"), "is no function"),
        (module(head="@I.ir_module(x)"), "has an argument that it does not take"),
        (module(head="@I.ir_module(check_well_formed=f())"), "has an argument that it does not"),
        (module(head="@evil"), "is no decorator"),
        ("class Module:\n    pass", "is not decorated with I.ir_module alone"),
        (kernel("import os"), "is a statement that a module has no use for"),
        (kernel("T.evaluate(T.call_extern('int32', 'system'))"), "is no operator or type"),
        (kernel("T.macro(x)"), "is no operator or type"),
        (kernel("y = (1, 2)"), "is no assignment of a kernel's"),
        (kernel("y = 'a'"), "is no assignment of a kernel's"),
        (kernel("for i in x: pass"), "is a statement that a module has no use for"),
        (kernel("for i in range(__import__('os').getpid()): pass"), "is no operator"),
        (kernel("with open('f'): pass"), "is no variable"),
        (kernel("x[0] = x.__class__"), "is no operator or type"),
        (kernel("x[0] = [1] * 9 << 9"), "computes with what is no number"),
        ("n = R.add = TypeVar('n')\n", "is no function and no module"),
        ("R.x = metadata = tvm.ir.load_json('[]')\n", "is no function and no module"),
        ("metadata = run('[]')\n", "is not how metadata is written"),
        ("metadata = tvm.ir.load_json(x)\n", "is not how metadata is written"),
        (function("return x", "x, *more"), "has arguments that are not plain"),
        (function("return x", "x=1"), "has arguments that are not plain"),
        (function("return x", "R"), "is the name of something else"),
        (function("return x", "__x"), "is no name of a variable"),
        (function("import os"), "is a statement that a module has no use for"),
        (function("for i in x: pass"), "is a statement that a module has no use for"),
        (function("with open('f'): pass"), "is no dataflow block"),
        (function("with R.dataflow(open('f')): pass"), "is no dataflow block"),
        (function("with R.dataflow() as y: pass"), "is no dataflow block"),
        (kernel("for x[0] in range(3): pass"), "is no variable"),
        (kernel("x[0], y = x"), "is no variable"),
        (function("x.y = x"), "is no variable"),
        (function("if x:\n        y = x\n    return x"), "is a statement that a module has no use"),
        (function("if f():\n        y = x\n    else:\n        y = x\n    return x"), "is no var"),
        (function("if x:\n        import os\n    else:\n        y = x"), "is a statement that a"),
        (function("return y"), "is no variable"),
        (function("return f(x)(x)"), "calls what is no operator"),
        (function("return R.add(**x)"), "has arguments that are not plain"),
        (function("return R.add(x, _a=x)"), "has arguments that are not plain"),
        (function("return R.evil(x)"), "is no operator or type of Relax"),
        (function("return x.__class__"), "is no operator or type of Relax"),
        (function("return [x for x in x]"), "is an expression that a module has no use for"),
        (function("return 'a' * 1000000000"), "computes with what is no number"),
        (function("return [x] * 1000000000"), "computes with what is no number"),
        (function("return {**x}"), "has an item without a key"),
        (function("return 1 << 9"), "is an expression that a module has no use for"),
        (function(f"return {1 << 64}"), "is a number of more than 64 bits"),
        (function("return 1j"), "is no number"),
        (function("return '__import__'"), "is a text that is no dtype"),
        (function("return '9**9'"), "is a text that is no dtype"),
        (function(f"return {'-' * 70}x"), "is nested too deeply"),
        (function(f"return {'(' * 300}x{')' * 300}"), "too"),
        ("def :", "line 1: invalid syntax"),
        ("\0", "null bytes"),
    ],
)
def test_what_is_no_plain_computation_is_refused_with_its_line(text, why):
    with refused("file", "^model.py is not read as TVMScript: ", says=why):
        checked(text)


def test_parameters_of_types_are_refused_as_python_3_12_reads_them(monkeypatch):
    tree = ast.parse(function("return x"))
    tree.body[0].type_params = [ast.Name("T")]  # `def main[T: run()](x)`, whose bound TVM would see
    with monkeypatch.context() as patched, refused("file", "has parameters of types"):
        patched.setattr(ast, "parse", lambda text: tree)
        checked("")
