"""Convolutions of Relay's build: tiles that fit into registers, and PyTorch's numbers."""

import json

import pytest
import torch
from torch.nn import functional as F
from tvm import autotvm, relay

from answers import quiet
from limits import rounding
from quick import combinations
from relascope.engine import kept_builds
from relascope.engine.building import options as options_of_builds
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module
from relascope.engine.relay.building.targets import BLAS, parse, processor
from relascope.engine.relay.faults.replay import Run
from relascope.engine.relay.kernels import convolution
from relay_functions import compiled, module_of, var
from traces import Fn

AVX2 = "llvm -mcpu=znver2"
WORKLOAD = (
    "conv2d_NCHWc.x86",
    ("TENSOR", (1, 64, 32, 32), "float32"),
    ("TENSOR", (64, 64, 3, 3), "float32"),
    (1, 1),
    (1, 1, 1, 1),
    (1, 1),
    "NCHW",
    "NCHW",
    "float32",
)


def test_what_was_tuned_goes_first_and_other_processors_keep_tvms_tiles():
    def answer(target):
        return autotvm.task.DispatchContext.current.query(parse(target), WORKLOAD)

    with convolution.Tiles(), autotvm.apply_history_best([]) as inside:
        assert answer(AVX2)["tile_ow"].size == [8, 4]
        assert answer(f"{AVX2} {SCHEDULES}")["tile_oc"].size == [4, 16]
        assert answer("llvm -mcpu=skylake-avx512").is_fallback
        assert answer("llvm").is_fallback
        entity = {"index": 3, "code_hash": None, "entity": [["tile_ow", "sp", [16, 2]]]}
        tuned = autotvm.task.space.ConfigEntity.from_json_dict(entity)
        inside.update(parse(AVX2), WORKLOAD, tuned)
        assert answer(AVX2)["tile_ow"].size == [16, 2]
    with autotvm.apply_history_best([]) as around:
        around.update(parse(AVX2), WORKLOAD, tuned)
        with convolution.Tiles(), autotvm.apply_history_best([]):
            assert answer(AVX2)["tile_ow"].size == [16, 2]


CASES = {
    "3x3": ((1, 64, 12, 12), (48, 64, 3, 3), {"padding": 1}),
    "1x1": ((2, 32, 6, 10), (16, 32, 1, 1), {}),
    "strides": ((1, 3, 23, 21), (16, 3, 7, 7), {"padding": 3, "stride": 2}),
    "dilation": ((1, 16, 11, 13), (32, 16, 3, 3), {"padding": (2, 1), "dilation": 2}),
    "odd channels": ((1, 5, 9, 9), (7, 5, 3, 2), {}),
    "twelve channels": ((1, 16, 8, 8), (12, 16, 3, 3), {"padding": 1}),
    "one row": ((1, 8, 1, 40), (8, 8, 1, 5), {"padding": (0, 2)}),
    "groups": ((1, 16, 8, 8), (32, 4, 3, 3), {"padding": 1, "groups": 4}),
    "depthwise": ((1, 32, 8, 8), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
}


def attributes(kernel, stride=1, padding=0, dilation=1, groups=1):
    """A convolution's, as Relay has them."""
    named = {"strides": stride, "padding": padding, "dilation": dilation}
    pairs = {n: v if isinstance(v, tuple) else (v, v) for n, v in named.items()}
    return pairs | {"groups": groups, "channels": kernel[0], "kernel_size": kernel[2:]}


@pytest.mark.parametrize(
    ("name", "weight"),
    combinations(list(CASES), ["float32 constant", "float64", "float32", "float64 constant"]),
)
def test_the_numbers_are_pytorchs(name, weight):
    dtype, fixed = weight.split()[0], "constant" in weight
    shape, kernel, options = CASES[name]
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=getattr(torch, dtype))
    w, b = torch.randn(kernel).to(x.dtype), torch.randn(kernel[0]).to(x.dtype)
    weight = relay.const(w.numpy(), dtype) if fixed else var("w", *kernel, dtype=dtype)
    given = var("x", *shape, dtype=dtype), weight
    made = relay.nn.conv2d(*given, **attributes(kernel, **options))
    made = relay.nn.relu(relay.nn.bias_add(made, relay.const(b.numpy(), dtype)))
    function = compiled(made, f"{processor()} {BLAS} {SCHEDULES}")
    (found,) = function.run({"x": x, "w": w})
    exact = F.conv2d(x.double(), w.double(), b.double(), **options).relu()
    limit = rounding(dtype, w[0].numel())
    assert found.dtype == x.dtype
    assert (found - exact).abs().max() < limit * exact.abs().max()


@pytest.mark.parametrize(("name", "dtype"), combinations(list(CASES), ["float32", "float64"]))
def test_a_build_that_is_linked_calls_pytorch_itself_with_the_same_results(
    name, dtype, tmp_path, monkeypatch
):
    shape, kernel, options = CASES[name]
    torch.manual_seed(0)
    x, w = (torch.randn(s, dtype=getattr(torch, dtype)) for s in (shape, kernel))
    g = torch.randn_like(F.conv2d(x, w, **options))
    given = {n: var(n, *t.shape, dtype=dtype) for n, t in zip("xwg", (x, w, g), strict=True)}
    about = attributes(kernel, **options)
    made = relay.Tuple(
        [
            relay.nn.conv2d(given["x"], given["w"], **about),
            relay.nn.conv2d_backward_weight(given["g"], given["x"], **about),
            relay.nn.conv2d_transpose(given["g"], given["w"], **about | {"channels": shape[1]}),
        ]
    )
    target, kept = f"{processor()} {BLAS} {SCHEDULES}", []
    through_python = compiled(made, target).run({"x": x, "w": w, "g": g})
    monkeypatch.setenv(kept_builds.VARIABLE, str(tmp_path))
    monkeypatch.setattr(kept_builds.SHELF, "name", "linked")
    monkeypatch.setattr(kept_builds.SHELF, "hand", lambda key, data: kept.append(data))
    with monkeypatch.context() as without:
        without.setattr(options_of_builds, "_link", lambda *_, **__: 1 / 0)
        unlinked = compiled(made, target, opt_level=2).run({"x": x, "w": w, "g": g})
        assert all(map(torch.equal, unlinked, through_python)) and not kept
    linked = compiled(made, target).run({"x": x, "w": w, "g": g})
    assert all(map(torch.equal, linked, through_python))
    called = "bmm_out" if name == "1x1" else "convolution_backward"
    assert f"aoti_torch_cpu_{called}".encode() in kept[0]


UNEVEN = {"padding": (0, 1, 2, 1)}  # of the top, the left, the bottom and the right


@pytest.mark.parametrize(
    ("name", "target"),
    combinations([*CASES, "uneven"], ["llvm", f"{processor()} {BLAS} {SCHEDULES}"]),
)
def test_the_gradient_of_a_weight_is_pytorchs(name, target):
    shape, kernel, options = CASES.get(name, ((1, 3, 6, 7), (4, 3, 3, 3), UNEVEN))
    torch.manual_seed(0)
    x, w = torch.randn(shape), torch.randn(kernel, dtype=torch.float64).requires_grad_()
    top, left, *_ = around = options.get("padding", 0) if name == "uneven" else (0, 0, 0, 0)
    padded = F.pad(x.double(), [left, around[3], top, around[2]])
    result = F.conv2d(padded, w, **(options if name != "uneven" else {}))
    grad = torch.randn(result.shape)
    (exact,) = torch.autograd.grad(result, w, grad.double())
    given = var("g", *grad.shape), var("x", *shape)
    made = relay.nn.conv2d_backward_weight(*given, **attributes(kernel, **options))
    function = compiled(made, target)
    (found,) = function.run({"x": x, "g": grad})
    limit = rounding("float32", grad[:, 0].numel())
    assert (found - exact).abs().max() < limit * exact.abs().max()
    operators = [n["op"] for n in json.loads(function.library.get_graph_json())["nodes"]]
    assert (operators.count("tvm_op") == 1) == (BLAS in target and name != "uneven")


def test_the_gradient_of_a_weight_runs_without_optimisation():
    grad, data = torch.randn(2, 6, 7, 7), torch.randn(2, 4, 9, 9)
    both = var("grad", *grad.shape), var("data", *data.shape)
    made = relay.nn.conv2d_backward_weight(*both, channels=6, kernel_size=(3, 3))
    given = {"grad": grad.numpy(), "data": data.numpy()}
    run = Run(module_of(made), given, "llvm", optimised=False)
    run()
    exact = torch.nn.grad.conv2d_weight(data, (6, 4, 3, 3), grad)
    limit = rounding("float32", grad[:, 0].numel(), exact.abs().max())
    assert (torch.from_numpy(run.results()[0]) - exact).abs().max() < limit


def test_a_layout_that_came_before_the_build_is_served_too():
    """As the pass `alter_op_layout` leaves it."""
    weight = torch.randn(16, 16, 3, 3)
    blocked = weight.view(2, 8, 2, 8, 3, 3).permute(0, 2, 4, 5, 3, 1).contiguous()
    made = relay.nn.contrib_conv2d_nchwc(
        var("x", 1, 2, 8, 8, 8),
        relay.const(blocked.numpy()),
        **attributes((16, 16, 3, 3), padding=1),
        data_layout="NCHW8c",
        kernel_layout="OIHW8i8o",
        out_layout="NCHW8c",
    )
    x = torch.randn(1, 16, 8, 8)
    given = x.view(1, 2, 8, 8, 8).permute(0, 1, 3, 4, 2).contiguous()
    (found,) = compiled(made, f"{processor()} {BLAS} {SCHEDULES}").run({"x": given})
    exact = F.conv2d(x.double(), weight.double(), padding=1)
    found = found.permute(0, 1, 4, 2, 3).reshape(exact.shape)
    assert (found - exact).abs().max() < rounding("float32", 16 * 3 * 3, exact.abs().max())


def agrees(module, *shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    source = ModelSource("laid out", training=True)
    model = model_from_module(module.eval(), ("x",), (x,), source, quiet)
    live = LiveProgram(load_engine("relay"), model, ("min_cut", None), "llvm")
    (found,) = live.forward({"x": x, **model.parameters})
    torch.testing.assert_close(found, model.forward()[0])


@pytest.mark.parametrize(
    "last", [lambda y: F.layer_norm(y, (32,), eps=1e-12), lambda y: y.var(-1)], ids=["norm", "var"]
)
def test_a_layer_norm_of_what_a_convolution_makes(last):
    """TVM lays out what `variance` subtracts as what it is subtracted from."""

    def pooled(x, w, b, again):
        y = F.conv2d(x, w, b, 2)
        return last((y + F.conv2d(y, again)).mean([-2, -1]))

    agrees(Fn(pooled, (32, 8, 2, 2), (32,), (32, 32, 1, 1)), 1, 8, 2, 2)


def test_an_axis_of_channels_that_is_taken_out():
    """As CoaT aggregates tokens; TVM leaves blocks of channels to `squeeze`, which has none."""

    def dropped(x, w, b):
        return F.conv1d(x.squeeze(), w, b).squeeze(1).tanh()

    agrees(Fn(dropped, (1, 3, 1), (1,)), 2, 1, 3, 32)
