"""Relax modules run by PyTorch, operator by operator, and otherwise than the sample."""

import itertools
import json
import runpy
from functools import partial

import numpy as np
import pytest
import torch
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import small_models  # noqa: F401
from answers import asking
from limits import OUTPUT, close, rounding
from place import ROOT
from quick import QUICK, rare
from relascope import cli
from relascope.engine.jobs import bisect
from relascope.engine.jobs.bisect import IMPORT, Question
from relascope.engine.jobs.runs import at_run, fitting_runs, runs_of
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.relax.faults import replay
from relascope.engine.relax.frontend import by_operator
from relascope.engine.relax.frontend.by_operator import ByOperator, unknown
from relascope.passes.catalogue import read_pipeline
from relascope.passes.pipeline import Pipeline
from relascope.passes.relax import fold_constant
from relascope.passes.relax.ir.rewrite import with_mod
from relax_modules import program

SAMPLES = ["mlp", "small_bert", "small_gpt2", "small_llama", "resnet"]
SAMPLES += [rare("vit"), rare("super_resolution")]


@pytest.mark.parametrize("name", SAMPLES)
def test_an_imported_sample_computes_what_its_model_does(session, name):
    loaded = session.programs.loaded(ModelSource(name), silent)
    own, model = loaded.state.program, loaded.model
    params = {n: v.numpy() for n, v in own.params.items()}
    inputs = {n: t.numpy() for n, t in zip(own.inputs, model.inputs, strict=True)}
    made = ByOperator(own.mod, params)(inputs)
    for found, wanted in zip(made, model.forward(), strict=True):
        assert np.allclose(found, wanted.detach().numpy(), **close(OUTPUT))


@I.ir_module
class Parts:
    @R.function
    def half(x: R.Tensor(("m", 6), "float32")) -> R.Tensor(("m", 3), "float32"):
        pair = R.split(x, 2, axis=1)
        return pair[0]

    @R.function
    def main(x: R.Tensor(("n", 6), "float32"), up: R.Tensor((), "bool")):
        n = T.int64()
        cls = Parts
        with R.dataflow():
            a = cls.half(x)
            b = R.take(x, R.const([5, 0, -1], "int64"), axis=1, mode="wrap")
            c = R.reshape(R.concat((a, b), axis=1), R.shape([n * 2, 3]))
            d = R.match_cast(c, R.Tensor((n * 2, 3), "float32"))
            e = R.sum(d, axis=[0])
            R.output(d, e)
        if up:  # noqa: SIM108 - TVMScript has no other branch
            out = R.multiply(d, e)
        else:
            out = R.subtract(d, e)
        return out


def run_by_tvm(mod, given):
    run = replay.runner(mod, given, "llvm", False)
    run()
    return run.results()


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("rows", [1, 5])
def test_it_agrees_with_tvm_on_functions_branches_and_open_sizes(rows, up):
    x = np.random.default_rng(rows).standard_normal((rows, 6)).astype("float32")
    given = {"x": x, "up": np.array(up)}
    (found,), (wanted,) = ByOperator(Parts, {})(given), run_by_tvm(Parts, given)
    assert found.shape == (2 * rows, 3) and np.allclose(found, wanted, **close(OUTPUT))


IMAGE = ((2, 4, 7, 8), "float32")
_op = relax.op


def part(tuple_, index):
    return relax.TupleGetItem(tuple_, index)


CALLS = {
    "conv2d": lambda x, w, *_: _op.nn.conv2d(x, w, (2, 1), (1, 0, 2, 1), (1, 2), 2),
    "max_pool2d": lambda x, *_: _op.nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 0, 1)),
    "avg_pool2d": lambda x, *_: _op.nn.avg_pool2d(x, (3, 2), (2, 1)),
    "adaptive": lambda x, *_: _op.nn.adaptive_avg_pool2d(x, (3, 2)),
    "pad": lambda x, *_: _op.nn.pad(x, [0, 1, 2, 0, 0, 0, 3, 1], pad_value=0.5),
    "reflect": lambda x, *_: _op.nn.pad(x, [0, 1, 2, 0, 0, 0, 3, 1], pad_mode="reflect"),
    "replicate": lambda x, *_: _op.nn.pad(x, [0, 9, 2, 0, 0, 0, 3, 1], pad_mode="replicate"),
    "variance": lambda x, *_: _op.variance(x, [1, 3], True),
    "std": lambda x, *_: _op.std(x, [2]),
    "prod": lambda x, *_: _op.prod(x, [1, 2]),
    "argmax": lambda x, *_: _op.argmax(x, 1, True),
    "split": lambda x, *_: part(_op.split(x, [1, 5], 3), 1),
    "parts": lambda x, w, y, *_: part(_op.split(y, 3, 1), 2),
    "cumsum": lambda x, *_: _op.cumsum(x, 2),
    "expand": lambda x, *_: _op.expand_dims(x, [0, 2, -1]),
    "tile": lambda x, *_: _op.tile(x, (2, 1, 1, 3)),
    "flip": lambda x, *_: _op.flip(x, 3),
    "triu": lambda x, *_: _op.triu(x, 1),
    "clip": lambda x, *_: _op.clip(x, -0.5, 0.25),
    "softmax": lambda x, *_: _op.nn.softmax(x, 1),
    "gelu": lambda x, *_: _op.nn.gelu(x),
    "leakyrelu": lambda x, *_: _op.nn.leakyrelu(x, 0.2),
    "slice": lambda x, *_: _op.strided_slice(x, [3, 2], [-2, 0], [0, 9], [-2, 3]),
    "einsum": lambda x, w, y, z: _op.einsum((y, z), "ij,kj->ik"),
    "clipped take": lambda x, *_: _op.take(x, relax.const(np.array([9, -3, 1])), 3, mode="clip"),
    "astype": lambda x, *_: _op.astype(_op.multiply(x, relax.const(9.0)), "int32"),
}


def test_operators_agree_with_tvms():
    """All in one program: a build costs more than an operator."""
    kinds = [(s, "float32") for s in ((2, 4, 7, 8), (6, 2, 3, 3), (2, 3), (2, 3))]
    mod = program(lambda *given: relax.Tuple([make(*given) for make in CALLS.values()]), *kinds)
    assert unknown(mod) == ""
    rng = np.random.default_rng(7)
    given = {f"x{i}": rng.standard_normal(s).astype(t) for i, (s, t) in enumerate(kinds)}
    results = ByOperator(mod, {})(given), run_by_tvm(mod, given)
    for name, found, wanted in zip(CALLS, *results, strict=True):
        assert found.shape == wanted.shape and found.dtype == wanted.dtype, name
        assert np.allclose(found, wanted, **close(OUTPUT)), name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_held_to_the_format_and_the_length_of_its_sums(
    session, tmp_path, monkeypatch, dtype
):
    def made(x, w):
        return _op.nn.relu(_op.matmul(x, w))

    path = tmp_path / "mod.json"
    path.write_text(tvm.ir.save_json(program(made, ((4, 9), dtype), ((9, 3), dtype))))
    question = Question(ModelSource(str(path)), Pipeline(), QUICK)

    found = bisect.bisect(asking(session), "relax", question)
    assert (found.kind, found.against) == ("", "PyTorch, operator by operator")
    wrong = {**by_operator._OPERATORS, "nn.relu": lambda g, a: g[0].relu() * 1.2}
    monkeypatch.setattr(by_operator, "_OPERATORS", wrong)
    found = bisect.bisect(asking(session), "relax", question)
    assert (found.kind, found.culprits.suspects) == ("wrong", (IMPORT,))
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    length = 2 * 9 + 1  # a product and a sum a term, and what follows
    assert found.question.tolerance.relative == min(8 * length**0.5 * unit, 1 / 8)


def test_what_pytorch_has_not_is_named_and_halves_may_become_wider():
    mod = program(lambda x: _op.matmul(x, x, "float32"), ((16, 16), "float16"))
    x = np.random.default_rng(3).standard_normal((16, 16)).astype("float16")
    (found,), wide = ByOperator(mod, {})({"x0": x}), x.astype("float64")
    assert found.dtype == np.float32
    assert np.allclose(found, wide @ wide, **close(rounding("float32", 16)))
    assert unknown(mod) == ""
    for said, operator, kind in (
        ("float8_e4m3fn", _op.nn.relu, ((4,), "float8_e4m3fn")),
        ("relax.sort", _op.sort, ((4,), "float32")),
        ("a pooling of this kind", partial(_op.nn.max_pool2d, ceil_mode=True), IMAGE),
        # Nothing of a module runs to find out.
        ("", lambda x: _op.sum(_op.zeros(relax.ShapeExpr([10**13]), "float32")), IMAGE),
    ):
        assert unknown(program(operator, kind)) == said


@pytest.mark.parametrize(
    ("op", "wrong", "run"),
    [
        ("sum", lambda g, a: g[0].sum(0) + (len(g[0]) == 2), (("n", 1),)),
        ("sum", lambda g, a: g[0].sum(0) + (len(g[0]) > 6), (("n", 5),)),
        ("subtract", lambda g, a: g[0], (("up", False),)),
        ("multiply", lambda g, a: g[0], (("up", True),)),
    ],
)
def test_a_fault_of_one_size_or_side_is_found(session, tmp_path, monkeypatch, op, wrong, run):
    monkeypatch.setattr(by_operator, "_OPERATORS", {**by_operator._OPERATORS, op: wrong})
    path = tmp_path / "mod.json"
    path.write_text(tvm.ir.save_json(Parts), encoding="utf-8")
    question = Question(ModelSource(str(path)), Pipeline(), QUICK)
    found = bisect.bisect(asking(session), "relax", question)
    assert found.kind == "wrong"
    drawn = found.question.source.run
    assert drawn == run or (not drawn and op in ("subtract", "multiply"))  # or the sample's own


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


def planted(operator, program):
    @mutator
    class Other(PyExprMutator):
        def visit_call_(self, call):
            made = self.visit_expr_post_order(call)
            name = getattr(made.op, "name", "")
            return relax.op.add(*made.args) if name == f"relax.{operator}" else made

    other = Other(program.mod)
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
    question = Question(source, read_pipeline("relax", "FoldConstant"), QUICK)
    result = bisect.bisect(ask, "relax", question)
    assert not result.kind
    assert result.also == ("Not run: the sides of 1 `if` in recursive functions.",)


def test_sizes_that_are_expressions_follow_the_sizes_in_them(session, opened):
    ask, source = opened(SIZES)
    runs, said = fitting_runs(ask, source, QUICK)
    assert ([at_run(run) for run in runs], said) == (["n = 1", "n = 5"], ())
    assert runs_of(ask, source)[1] == ""
    inputs = session.programs.loaded(runs[1], silent).model.inputs
    assert [tuple(t.shape) for t in inputs] == [(5, 4), (15, 4)]


def test_the_translation_by_hand_computes_what_pytorch_does_or_refuses():
    lecture = runpy.run_path(str(ROOT / "docs/lectures/frameworks.py"))
    translate, (module, inputs) = lecture["translate"], lecture["model"]()
    mod, values = translate(module, inputs), (*inputs, *module.parameters())
    names = [p.name for p in mod["main"].params]
    given = {n: t.detach().numpy() for n, t in zip(names, values, strict=True)}
    (found,), wanted = run_by_tvm(mod, given), module(*inputs).detach()
    assert wanted.abs().max() > 0.1
    torch.testing.assert_close(torch.from_numpy(found), wanted, **close(rounding("float32", 32)))
    with pytest.raises(NotImplementedError, match="no rule for"):
        translate(torch.nn.Sequential(torch.nn.Tanh()), (torch.ones(2, 3),))
