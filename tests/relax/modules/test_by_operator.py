"""Relax modules run by PyTorch, operator by operator."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from answers import asking
from quick import QUICK
from relascope.engine.jobs import bisect
from relascope.engine.jobs.bisect import IMPORT, Question
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relax.faults import replay
from relascope.engine.relax.frontend import by_operator
from relascope.engine.relax.frontend.by_operator import ByOperator, unknown
from relascope.engine.relax.session import RelaxSession
from relascope.passes.pipeline import Pipeline
from relax_modules import program

SAMPLES = [
    *("mlp", "bert_layer", "gpt2_block", "llama_block", "resnet"),
    *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("vit", "super_resolution")),
]


@pytest.fixture(scope="module")
def session():
    return RelaxSession()


@pytest.mark.parametrize("name", SAMPLES)
def test_an_imported_sample_computes_what_its_model_does(session, name):
    loaded = session.programs.loaded(ModelSource(name), silent)
    own, model = loaded.state.program, loaded.model
    params = {n: v.numpy() for n, v in own.params.items()}
    inputs = {n: t.numpy() for n, t in zip(own.inputs, model.inputs, strict=True)}
    made = ByOperator(own.mod, params)(inputs)
    for found, wanted in zip(made, model.forward(), strict=True):
        assert np.allclose(found, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)


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
    assert found.shape == (2 * rows, 3) and np.allclose(found, wanted, rtol=1e-5, atol=1e-6)


IMAGE = ((2, 4, 7, 8), "float32")
_op = relax.op
CALLS = {
    "conv2d": (
        lambda x, w: _op.nn.conv2d(x, w, (2, 1), (1, 0, 2, 1), (1, 2), 2),
        [IMAGE, ((6, 2, 3, 3), "float32")],
    ),
    "max_pool2d": (lambda x: _op.nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 0, 1)), [IMAGE]),
    "avg_pool2d": (lambda x: _op.nn.avg_pool2d(x, (3, 2), (2, 1)), [IMAGE]),
    "adaptive": (lambda x: _op.nn.adaptive_avg_pool2d(x, (3, 2)), [IMAGE]),
    "pad": (lambda x: _op.nn.pad(x, [0, 1, 2, 0, 0, 0, 3, 1], pad_value=0.5), [IMAGE]),
    "reflect": (lambda x: _op.nn.pad(x, [0, 1, 2, 0, 0, 0, 3, 1], pad_mode="reflect"), [IMAGE]),
    "replicate": (lambda x: _op.nn.pad(x, [0, 9, 2, 0, 0, 0, 3, 1], pad_mode="replicate"), [IMAGE]),
    "variance": (lambda x: _op.variance(x, [1, 3], True), [IMAGE]),
    "std": (lambda x: _op.std(x, [2]), [IMAGE]),
    "prod": (lambda x: _op.prod(x, [1, 2]), [IMAGE]),
    "argmax": (lambda x: _op.argmax(x, 1, True), [IMAGE]),
    "split": (lambda x: relax.TupleGetItem(_op.split(x, [1, 5], 3), 1), [IMAGE]),
    "parts": (lambda x: relax.TupleGetItem(_op.split(x, 3, 2), 2), [IMAGE]),
    "cumsum": (lambda x: _op.cumsum(x, 2), [IMAGE]),
    "expand": (lambda x: _op.expand_dims(x, [0, 2, -1]), [IMAGE]),
    "tile": (lambda x: _op.tile(x, (2, 1, 1, 3)), [IMAGE]),
    "flip": (lambda x: _op.flip(x, 3), [IMAGE]),
    "triu": (lambda x: _op.triu(x, 1), [IMAGE]),
    "clip": (lambda x: _op.clip(x, -0.5, 0.25), [IMAGE]),
    "softmax": (lambda x: _op.nn.softmax(x, 1), [IMAGE]),
    "gelu": (_op.nn.gelu, [IMAGE]),
    "leakyrelu": (lambda x: _op.nn.leakyrelu(x, 0.2), [IMAGE]),
    "slice": (lambda x: _op.strided_slice(x, [3, 2], [-2, 0], [0, 9], [-2, 3]), [IMAGE]),
    "einsum": (lambda x, y: _op.einsum((x, y), "ij,kj->ik"), [((2, 3), "float32")] * 2),
    "clipped take": (
        lambda x: _op.take(x, relax.const(np.array([9, -3, 1])), 3, mode="clip"),
        [IMAGE],
    ),
    "astype": (lambda x: _op.astype(_op.multiply(x, relax.const(9.0)), "int32"), [IMAGE]),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_operator_agrees_with_tvms(name):
    make, kinds = CALLS[name]
    mod = program(make, *kinds)
    assert unknown(mod) == ""
    rng = np.random.default_rng(7)
    given = {f"x{i}": rng.standard_normal(s).astype(t) for i, (s, t) in enumerate(kinds)}
    for found, wanted in zip(ByOperator(mod, {})(given), run_by_tvm(mod, given), strict=True):
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5)


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
    assert (found.kind, found.found.suspects) == ("wrong", (IMPORT,))
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    length = 2 * 9 + 1  # a product and a sum a term, and what follows
    assert found.question.tolerance.relative == min(8 * length**0.5 * unit, 1 / 8)


def test_a_product_of_halves_may_be_wider_than_they_are():
    mod = program(lambda x: _op.matmul(x, x, "float32"), ((16, 16), "float16"))
    assert unknown(mod) == ""
    given = {"x0": np.random.default_rng(3).standard_normal((16, 16)).astype("float16")}
    (found,) = ByOperator(mod, {})(given)
    wide = given["x0"].astype("float64")
    assert found.dtype == np.float32 and np.allclose(found, wide @ wide, rtol=1e-6, atol=1e-5)


def test_what_pytorch_has_not_is_named():
    eighths = program(_op.nn.relu, ((4,), "float8_e4m3fn"))
    assert unknown(eighths) == "float8_e4m3fn"
    assert unknown(program(lambda x: _op.sort(x), ((4,), "float32"))) == "relax.sort"
    strange = program(lambda x: _op.nn.max_pool2d(x, (2, 2), ceil_mode=True), IMAGE)
    assert unknown(strange) == "a pooling of this kind"
    endless = program(lambda x: _op.sum(_op.zeros(relax.ShapeExpr([10**13]), "float32")), IMAGE)
    assert unknown(endless) == "", "nothing of a module runs to find out"


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


def test_a_fault_of_all_of_tvm_is_one_since_the_import(session, tmp_path, monkeypatch):
    wrong = {**by_operator._OPERATORS, "nn.relu": lambda g, a: g[0].abs()}
    monkeypatch.setattr(by_operator, "_OPERATORS", wrong)
    path = tmp_path / "mod.relax"
    path.write_text(program(_op.nn.relu, ((4, 8), "float32")).script(), encoding="utf-8")
    question = Question(ModelSource(str(path)), Pipeline(), QUICK)
    found = bisect.bisect(asking(session), "relax", question)
    assert (found.kind, found.found.suspects) == ("wrong", (IMPORT,))
