"""Programs with branches and open sizes, run otherwise than the sample."""

import itertools
import json
from functools import partial

import pytest
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from answers import asking
from quick import QUICK
from relascope import cli
from relascope.engine.jobs import bisect
from relascope.engine.jobs.runs import at_run, fitting_runs, runs_of
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import source_from_file
from relascope.passes.catalogue import read_pipeline
from relascope.passes.relax import fold_constant
from relascope.passes.relax.ir.rewrite import with_mod

HEAD = """from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Module:
    @R.function
"""
BRANCHES = f"""{HEAD}
    def main(x: R.Tensor((2, 3), "float32"), up: R.Tensor((), "bool")):
        if up:
            first = R.add(x, x)
        else:
            first = R.multiply(x, x)
        large = R.greater(R.max(x), R.const(100.0, "float32"))
        if large:
            out = R.subtract(first, x)
        else:
            out = R.divide(first, x)
        return out
"""
SIZES = f"""{HEAD}
    def main(
        x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("2 * n + T.max(n, 4)", 4), "float32")
    ):
        out = R.concat((x, y), axis=0)
        return out
"""


@pytest.fixture
def opened(session, tmp_path):
    def write(text):
        path = tmp_path / "mod.py"
        path.write_text(text)
        return asking(session), source_from_file(path)

    return write


@mutator
class Other(PyExprMutator):
    def visit_call_(self, call):
        made = self.visit_expr_post_order(call)
        name = getattr(made.op, "name", "")
        return relax.op.add(*made.args) if name == f"relax.{self.instead}" else made


def planted(operator, program):
    other = Other(program.mod)
    other.instead = operator
    functions = {v: other.visit_expr(f) for v, f in program.mod.functions.items()}
    return with_mod(program, tvm.IRModule(functions))


def found(monkeypatch, opened, operator):
    monkeypatch.setattr(fold_constant, "fold", partial(planted, operator))
    ask, source = opened(BRANCHES)
    question = bisect.Question(source, read_pipeline("relax", "fold"), QUICK)
    return bisect.bisect(ask, "relax", question)


@pytest.mark.parametrize(("operator", "side"), [("subtract", "true"), ("divide", "false")])
def test_a_fault_on_either_side_of_a_computed_if_is_found(monkeypatch, opened, operator, side):
    result = found(monkeypatch, opened, operator)
    assert (result.kind, result.culprits.suspects) == ("wrong", (0,))
    on = f"This was on sample inputs at large = {side} (forced)."
    # What the values decide by themselves is the sample's own run.
    assert (on in bisect.verdict("relax", result)) == (side == "true")


def test_without_a_fault_both_sides_are_good_and_are_named(monkeypatch, opened):
    result = found(monkeypatch, opened, "none of these")
    assert not result.kind
    both = "; large = true (forced); large = false (forced)."
    assert bisect.verdict("relax", result).count(both) == 1


INSIDE = """        again = R.less(R.max(out), R.const(0.0, "float32"))
        if again:
            last = R.exp(out)
        else:
            if up:
                last = R.sin(out)
            else:
                last = R.cos(out)
        return last"""


def test_check_runs_every_side_and_a_program_without_pytorch_has_one_mode(tmp_path, capsys):
    (tmp_path / "mod.py").write_text(BRANCHES.replace("        return out", INSIDE))
    options = ["--engine", "relax", "--passes", "FoldConstant", "--target", "llvm", "--json"]
    assert cli.main(["check", str(tmp_path / "mod.py"), *options]) == 0
    document = json.loads(capsys.readouterr().out)
    runs = {row["inputs"].partition(" at ")[2] for row in document["inputs"]}
    pairs = itertools.product(("true", "false"), repeat=2)
    forced = {f"large = {one} (forced) and again = {other} (forced)" for one, other in pairs}
    assert runs == {"", "up = true", "up = false"} | forced and document["passed"]
    assert {row["stage"] for row in document["stages"]} == {"forward"}


LOOP = f"""{HEAD}
    def loop(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        large = R.greater(R.max(x), R.const(9.0, "float32"))
        if large:
            out = R.tanh(x)
        else:
            out = Module.loop(R.add(x, R.const(1.0, "float32")))
        return out

    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        out = Module.loop(x)
        return out
"""


def test_no_side_is_forced_in_a_function_that_calls_itself_and_that_is_said(opened):
    ask, source = opened(LOOP)
    result = bisect.bisect(
        ask, "relax", bisect.Question(source, read_pipeline("relax", "FoldConstant"), QUICK)
    )
    assert not result.kind
    assert result.also == ("Not run: the sides of 1 `if` in recursive functions.",)


def test_sizes_that_are_expressions_follow_the_sizes_in_them(session, opened):
    ask, source = opened(SIZES)
    runs, said = fitting_runs(ask, source, QUICK)
    assert ([at_run(run) for run in runs], said) == (["n = 1", "n = 5"], ())
    assert runs_of(ask, source)[1] == ""
    inputs = session.programs.loaded(runs[1], silent).model.inputs
    assert [tuple(t.shape) for t in inputs] == [(5, 4), (15, 4)]
