"""One's own passes: examples run as tests, applications counted, programs verified, IR printed."""

import re
from functools import cache
from unittest.mock import patch

import pytest

from command_line import document
from engines import Shared
from place import ROOT
from relascope.commands import text
from relascope.core.errors import EngineError
from relascope.passes import catalogue
from relascope.passes.applications import Applications, counting, looking_at, may_replace
from relascope.passes.catalogue import info, read_pipeline, user

OWN = {
    "relay": """
IR = "relay"
from dataclasses import replace
import tvm
from tvm import relay
from relascope.passes.relay.ir.rewrite import op_name, rewrite

EXP, TANH, RELU = relay.exp, relay.tanh, relay.nn.relu

def same(call, args):
    return relay.Call(call.op, args, call.attrs)

def rewritten(program, put):
    return rewrite(program, lambda call, args: put(call, args, op_name(call)))
""",
    "relax": """
IR = "relax"
from dataclasses import replace
import tvm
from tvm import relax
from relascope.passes.relax.ir.rewrite import op_name, rewrite

EXP, TANH, RELU = relax.op.exp, relax.op.tanh, relax.op.nn.relu

def same(call, args):
    return tvm.ir.Call(call.op, list(args), attrs=call.attrs, ty_args=call.ty_args)

def rewritten(program, put):
    return rewrite(program, lambda call, maker: put(call, call.args, op_name(call)))
""",
}
COMMON = """
def broken(program):
    return replace(program, inputs=(*program.inputs, "nobody"))

def third_wrong(program):
    seen = []
    def put(call, args, name):
        if name not in ("nn.dense", "matmul", "nn.bias_add", "add"):
            return None
        seen.append(call)
        again = same(call, args)
        return same(call, [TANH(args[0]), args[1]]) if len(seen) == 3 else again
    return rewritten(program, put)

def soft(program):
    def put(call, args, name):
        return TANH(args[0]) if name == "exp" else None
    return rewritten(program, put)

def soft_kept(program):
    return program

def before_soft(new):
    return new.example(EXP(new.var("x", 2, 3)), differs="It is another function.")

def after_soft(new):
    return TANH(new.var("x", 2, 3))

def before_soft_wrongly(new):
    return EXP(new.var("x", 2, 3))

def after_soft_wrongly(new):
    return RELU(new.var("x", 2, 3))

def before_soft_kept(new):
    return RELU(new.var("x", 2, 3))

def before_soft_nothing(new):
    pass
"""


@pytest.fixture
def own(request, tmp_path, monkeypatch):
    ir = request.param
    file, documented = tmp_path / "own.py", tmp_path / "documented.py"
    file.write_text(OWN[ir] + COMMON)
    page = (ROOT / "docs" / "in-your-code.md").read_text("utf-8")
    (code,) = re.findall(rf"^```$\n(from relascope\.passes\.{ir}\..*?)^```$", page, re.M | re.S)
    documented.write_text(code)
    monkeypatch.setenv(user.VARIABLE, "")
    connect = cache(lambda name: Shared(name, None))

    def ask(*args, **more):
        files = [f"--pass-file={path}" for path in (file, documented)]
        return document(*args, "--engine", ir, *files, connect=connect, **more)

    ask.ir = ir
    with patch.dict(catalogue.CATALOGUE):
        yield ask
    connect(ir).stop()


IRS = [pytest.param("relay", marks=pytest.mark.exhaustive), "relax"]


@pytest.mark.engine
@pytest.mark.parametrize("own", IRS, indirect=True)
def test_ones_own_passes(own):
    """Together, for one engine has to start with them."""
    tests = {t["name"]: t for t in own("passes", "--test", status=3)["tests"]}
    assert sorted(n for n, t in tests.items() if t["passed"]) == ["relu_twice", "soft", "soft_kept"]
    assert tests["relu_twice"]["expected"], "as the docs have it"
    assert tests["soft"]["expected"] and tests["soft"]["max_rel"] is None
    assert tests["soft_kept"]["max_rel"] == 0.0 and not tests["soft_kept"]["expected"]
    wrong = tests["soft_wrongly"]
    assert wrong["said"][0] == "the pass does not make the program that the file expects"
    assert "results differ by" in wrong["said"][1] and "+" in wrong["diff"]
    assert "tanh" in wrong["diff"] and "relu" in wrong["diff"]
    assert tests["soft_nothing"]["said"] == ["before_soft_nothing returns nothing."]
    said = text.passes({"tests": [*tests.values()], "without": []})
    assert "passed  soft_kept (by its numbers alone, results within 0e+00 in float64)" in said
    shown = own("passes", "soft")
    assert "exp" in shown["example"]["before"] and "tanh" in shown["example"]["after"]

    found = own("bisect", "mlp", "--passes", "cse|third_wrong|bind")
    assert found["culprit"]["pass"] == "third_wrong"
    application = found["application"]
    of, scope = {"relay": (5, "act"), "relax": (4, "head")}[own.ir]
    assert (application["number"], application["before"], application["of"]) == (3, 2, of)
    assert application["node"]["scope"] == scope
    assert f"Application 3 of {of} makes it wrong: the one to `" in found["verdict"]
    assert [r["last"]["count"] for r in found["log"]][-3:] == [0, 2, 3]
    assert "2 third_wrong, the first 3" in text.bisect(found)

    counted = ("step", "mlp", "--passes", "cse|third_wrong", "--check", "--verify-each")
    assert own(*counted, "--count", "third_wrong=2")["fails"] is False
    data = own(*counted, status=3)
    assert data["fails"] and data["steps"][1]["error"]["verdict"] == "wrong"
    assert data["steps"][1]["problems"] == []
    data = own("step", "mlp", "--passes", "cse|broken|bind", "--verify-each", status=3)
    assert any("argument nobody" in p for p in data["steps"][1]["problems"])
    assert "programs are broken" in text.step(data)

    data = own("step", "mlp", "--passes", "cse|third_wrong|bind", "--print", "--stop-after", "2")
    assert [s["pass"] for s in data["steps"]] == ["cse", "third_wrong"]
    assert "tanh" in data["steps"][1]["ir"] and "tanh" not in data["steps"][0]["ir"]
    changed = own("step", "mlp", "--passes", "cse|third_wrong", "--print-changed")["steps"]
    assert [s["ir"] is None for s in changed] == [True, False]
    error = own("step", "mlp", "--stop-after", "soft", status=2)["error"]
    assert error["where"] == "--stop-after" and "no step 'soft'" in error["message"]
    error = own("step", "mlp", "--passes", "soft_kept(count=x)", status=2)["error"]
    assert "ount=x is not a count" in error["message"]


def test_a_counter_lets_so_many_through_and_counts_nothing_outside():
    assert may_replace("a")
    with counting(Applications(2)):
        assert [may_replace(e) for e in "abc"] == [True, True, False]
    counter = Applications()
    with counting(counter):
        assert may_replace("a")
        looking_at("b")
    assert (counter.replaced, counter.refused, counter.at, counter.asked) == (["a"], 0, "b", True)
    looking_at("c")
    assert may_replace("d") and counter.replaced == ["a"] and counter.at == "b"


def test_what_is_not_counted_says_why():
    for steps, words in (
        ("cse(count=1)", "TVM's passes do their own rewriting"),
        ("root_grad_out(count=1)", "the program needs all of them"),
        ("drop_zeros(count=-1)", "is not a count"),
    ):
        with pytest.raises(ValueError, match=words):
            read_pipeline("relay", steps)
    step = read_pipeline("relay", "drop_zeros(count=3)").steps[0]
    assert (info("relay", step).count(step), info("relay", step).arguments(step)) == (3, {})


def test_a_counted_step_is_not_narrowed():
    from relascope.engine.protocol.fault import Suspicion
    from relascope.engine.server.steps import passes_of

    pipeline = read_pipeline("relay", "drop_zeros(count=3)")
    where = Suspicion(pipeline, 0, 0, "wrong", "llvm", 1e-5)
    with pytest.raises(EngineError, match="cannot be narrowed"):
        passes_of("relay", where)
