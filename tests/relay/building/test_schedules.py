"""Relay's kernels by our schedules and by OpenBLAS compute what PyTorch does."""

import pytest
import torch
import tvm
from torch.nn import functional as F
from tvm import relay, te

import parallel_loops
from limits import rounding
from products import EVERY, check_product
from quick import combinations
from relascope.core.errors import EngineError
from relascope.engine.building.options import Builder, built_anew
from relascope.engine.cpu_kernels.openblas import FUNCTIONS, OPENBLAS
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.relay.building import runtime
from relascope.engine.relay.building.targets import parse, targets
from relascope.engine.relay.kernels import schedules
from relay_functions import OURS, compiled, constant, var
from scheduled_kernels import *  # noqa: F403

LANES = [8, 16]


@pytest.fixture
def lanes(request, monkeypatch):
    """Vectors of either width, whatever the processor: LLVM cuts what is too wide in two."""
    monkeypatch.setattr(schedules, "get_simd_32bit_lanes", lambda: request.param)
    fresh = Builder(runtime.make, tvm.ir.structural_hash, tvm.ir.structural_equal)
    monkeypatch.setattr(runtime, "_builder", fresh)
    return request.param


@pytest.fixture
def scheduled(monkeypatch):
    """What our rules are asked for, and made of it."""
    made, own = [], schedules.scheduled
    monkeypatch.setattr(
        schedules, "scheduled", lambda *a, **k: made.append(own(*a, **k)) or made[-1]
    )
    return made


@pytest.mark.parametrize(
    ("shape", "columns", "lanes"),
    combinations([(14, 32), (3, 48), (42, 64), (129, 24), (2, 8), (500, 16)], [16, 48, 768], LANES),
    indirect=["lanes"],
)
def test_products_with_constant_weights(shape, columns, lanes):
    weight, bias = torch.randn(columns, shape[1]), torch.randn(columns)
    product = relay.nn.dense(var("x", *shape), constant(weight))
    function = compiled(relay.nn.relu(relay.add(product, constant(bias))), OURS)
    names = function.library.get_graph_json()
    assert ("contrib_dense_pack" in names) == (shape[0] <= 160 or lanes == 16)
    x = torch.randn(shape)
    for given in (x, -x):
        (found,) = function.run({"x": given})
        exact = F.linear(given.double(), weight.double(), bias.double()).relu()
        assert (found - exact).abs().max() < rounding("float32", shape[1], exact.abs().max())


@pytest.mark.parametrize(
    ("name", "lanes"), combinations(["erf", "exp", "tanh", "sigmoid"], LANES), indirect=["lanes"]
)
def test_what_follows_a_product_is_computed_on_its_tiles(name, lanes, scheduled):
    weight = torch.randn(48, 32) / 4
    product = relay.nn.dense(var("x", 14, 32), constant(weight))
    halved = relay.multiply(product, relay.const(0.5))  # a block of its own, of one number
    function = compiled(getattr(relay, name)(halved), OURS)
    assert any(m is not None and "vectorized" in m.mod.script() for m in scheduled)
    x = torch.randn(14, 32)
    (found,) = function.run({"x": x})
    halves = F.linear(x.double(), weight.double()) / 2
    exact = getattr(torch, name)(halves)
    limit = rounding("float32", 32, exact.abs().max() * halves.abs().max())
    assert (found - exact).abs().max() < limit
    code = function.library.get_lib().get_source("ll")
    assert f"@{name}f(" not in code and f"@llvm.{name}" not in code


@pytest.mark.parametrize(
    ("size", "columns", "lanes"),
    combinations([(14, 768), (6, 64), (48, 128), (500, 64)], [48, 192, 10], LANES),
    indirect=["lanes"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_products_with_weights_that_are_arguments(size, columns, lanes, turned):
    rows, inner = size
    shape = (columns, inner) if turned else (inner, columns)
    product = relay.nn.matmul(var("x", rows, inner), var("w", *shape), transpose_b=turned)
    function = compiled(relay.nn.relu(product), OURS)
    for _ in range(2):
        x, w = torch.randn(rows, inner), torch.randn(shape)
        (found,) = function.run({"x": x, "w": w})
        exact = (x.double() @ (w.T if turned else w).double()).relu()
        assert (found - exact).abs().max() < rounding("float32", inner, exact.abs().max())


@pytest.mark.parametrize(
    ("sizes", "lanes"),
    combinations([(14, 48, 72), (48, 4, 768), (500, 8, 16)], LANES),
    indirect=["lanes"],
)
def test_the_gradient_of_a_weight(sizes, lanes):
    inner, rows, columns = sizes
    product = relay.nn.matmul(var("x", inner, rows), var("y", inner, columns), transpose_a=True)
    x, y = torch.randn(inner, rows), torch.randn(inner, columns)
    (found,) = compiled(product, OURS).run({"x": x, "y": y})
    exact = x.double().T @ y.double()
    assert (found - exact).abs().max() < rounding("float32", inner, exact.abs().max())


FORMS = [((14, 128), (128, 48), False, False), ((14, 64), (48, 64), False, True)]
FORMS += [((14, 48), (14, 64), True, False)]


@pytest.mark.parametrize(("left", "right", "a", "b"), FORMS)
def test_products_of_our_own_are_scheduled(left, right, a, b, scheduled):
    """A stage of ours that the rules do not know would be left as plain loops, right and slow."""
    product = relay.nn.matmul(var("x", *left), var("w", *right), transpose_a=a, transpose_b=b)
    with built_anew():
        compiled(product, OURS)
    assert scheduled
    assert all(made is not None and "vectorized" in made.mod.script() for made in scheduled)


@pytest.mark.parametrize("fixed", [True, False])
def test_the_code_asks_memory_for_what_comes_next_of_a_weight(fixed):
    right = constant(torch.randn(48, 64)) if fixed else var("w", 48, 64)
    function = compiled(relay.nn.dense(var("x", 14, 64), right), OURS)
    assert "prefetch" in assembly(function)


@pytest.mark.parametrize("spelled", ["tan", "sine over cosine", "cosine over sine"])
def test_a_tangent_behind_a_convolution_is_right(spelled):
    """LLVM, where it may reorder, makes a call of such a ratio that takes no vectors."""
    weight = torch.randn(4, 1, 3, 1)
    shape = {"channels": 4, "kernel_size": (3, 1), "padding": (0, 0)}
    x = relay.nn.conv2d(var("x", 1, 1, 8, 9), constant(weight), **shape)
    sine, cosine, given = relay.sin(x), relay.cos(x), torch.randn(1, 1, 8, 9)
    tangents = {"tan": relay.tan(x), "sine over cosine": sine / cosine}
    (found,) = compiled(tangents.get(spelled, cosine / sine), OURS).run({"x": given})
    exact = F.conv2d(given.double(), weight.double()).tan()
    exact = 1 / exact if spelled == "cosine over sine" else exact
    steep = 1 + exact.abs().max() ** 2  # so much an error of the convolution grows at a pole
    assert (found - exact).abs().max() < rounding("float32", 3, steep)


def test_other_targets_are_not_scheduled_here(scheduled):
    expression = relay.nn.softmax(var("x", 5, 33))
    compiled(expression, "llvm")
    assert not scheduled
    compiled(expression, OURS)
    assert scheduled


def test_loops_start_no_threads_beside_pytorchs():
    function = compiled(relay.exp(var("x", 512, 512)), "llvm")
    assert "TVMBackendParallelLaunch" in function.library.get_lib().get_source("ll")
    parallel_loops.check_loops_on_pytorchs_threads(lambda x: function.run({"x": x})[0])


TARGET = f"llvm {OPENBLAS}"


def assembly(function):
    return function.library.get_lib().get_source("asm")


def built(product):
    a = te.placeholder(product.left, product.dtype, "a")
    b = te.placeholder(product.right, product.dtype, "b")
    kernel = te.create_prim_func([a, b, product.kernel(te, tvm.tir, a, b)])
    run = tvm.build(tvm.IRModule({"main": kernel}), target=parse("llvm"))
    of_torch = torch.utils.dlpack.to_dlpack
    return lambda *tensors: run(*(tvm.nd.from_dlpack(of_torch(t)) for t in tensors))


@EVERY
def test_products_agree_with_pytorch(left, right, turn_a, turn_b, dtype):
    check_product(built, left, right, turn_a, turn_b, dtype)


@pytest.mark.parametrize(
    ("target", "dtype"), combinations([TARGET, f"{TARGET} {SCHEDULES}"], ["float64", "float32"])
)
def test_a_program_agrees_with_pytorch_and_calls_no_python(target, dtype, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("a product was left to PyTorch")

    x, w = var("x", 4, 200, 96, dtype=dtype), var("w", 80, 96, dtype=dtype)
    dense = relay.nn.dense(relay.reshape(x, (800, 96)), w)
    rows = relay.tanh(relay.reshape(dense, (4, 200, 80)))
    function = compiled(relay.nn.batch_matmul(rows, rows, transpose_b=True), target)
    assert FUNCTIONS[dtype] in assembly(function)
    kind = getattr(torch, dtype)
    a, b = torch.randn(4, 200, 96, dtype=kind), torch.randn(80, 96, dtype=kind)
    expected = F.linear(a.double(), b.double()).tanh()
    for name in ("mm", "bmm"):
        monkeypatch.setattr(torch, name, fail)
    (found,) = function.run({"x": a, "w": b})
    monkeypatch.undo()
    exact = expected @ expected.mT
    assert (found - exact).abs().max() < rounding(dtype, expected.shape[-1], exact.abs().max())


def test_it_is_offered_with_our_schedules_and_without_for_processors_alone():
    names = [t.name for t in targets()]
    for last in (OPENBLAS, f"{OPENBLAS} {SCHEDULES}"):
        assert sum(name.endswith(last) for name in names) == 1
    with pytest.raises(EngineError, match="CPU"):
        parse(f"cuda {OPENBLAS}")


def test_other_libraries_stay_what_they_are():
    product = relay.nn.dense(var("a", 300, 50), var("b", 70, 50))
    mkl, cudnn = (assembly(compiled(product, f"llvm -libs={name}")) for name in ("mkl", "cudnn"))
    assert "scipy_cblas" not in mkl + cudnn and "tvm.contrib.mkl" not in cudnn


def test_loops_of_parts_begin_at_zero():
    """As those of padded tensors that are added, which LLVM's code generator would refuse."""
    a, b = var("a", 3, 5), var("b", 3, 5)
    over, under = (relay.nn.pad(t, (w, (0, 0))) for t, w in ((a, (0, 3)), (b, (3, 0))))
    given = {"a": torch.randn(3, 5), "b": torch.randn(3, 5)}
    (found,) = compiled(relay.add(over, under), OURS).run(given)
    assert torch.equal(found, torch.cat([*given.values()]))
