"""Convolutions and attention as calls of PyTorch's, and products by OpenBLAS."""

import math

import pytest
import torch
import tvm
from torch import nn
from torch.nn import functional
from tvm import relax, te, tirx
from tvm.relax import op

from answers import refused
from gradients import Fn, imported
from limits import LIMITS, OUTPUT, close
from products import EVERY, check_product
from quick import combinations
from relascope.core.errors import EngineError
from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels import openblas
from relascope.engine.cpu_kernels.openblas import FUNCTIONS, OPENBLAS
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.relax.building import runtime
from relascope.engine.relax.building.profiled import Profiled
from relascope.engine.relax.building.targets import BLAS, parse, targets
from relascope.engine.relax.kernels import attention
from relascope.engine.relax.kernels.convolution import dispatched
from relascope.engine.relax.kernels.openblas import native, replaced
from relascope.engine.relax.tune import tuning
from relascope.passes.relax import channels_last
from relascope.passes.relax.ir.rewrite import bindings
from relascope.passes.relax.training.conv_gradient import of_weight
from relax_modules import check, compiled, draw, errors, main_of, program


@pytest.mark.parametrize(
    ("size", "padding", "served"), [(5, [1, 1, 1, 1], True), (4, [1, 1, 0, 0], False)]
)
def test_the_gradient_of_a_weight_under_uneven_padding_stays_with_tvm(size, padding, served):
    layouts = {"data_layout": "CNHW", "kernel_layout": "IOHW", "out_layout": "CNHW"}
    given = ((2, 3, 5, 5), "float32"), ((2, 4, size, size), "float32")
    mod = program(lambda x, grad: op.nn.conv2d(x, grad, padding=padding, **layouts), *given)
    ((_, call),) = bindings(mod["main"])
    assert (dispatched(call) is not None) == served


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_images_have_channels_last_between_convolutions(batch, stride):
    torch.manual_seed(0)
    sizes = {"x": (batch, 3, 9, 8), "w": (6, 3, 3, 3), "b": (6, 1, 1), "deep": (6, 1, 3, 3)}
    given = {name: torch.randn(size) for name, size in sizes.items()}
    weight = given["deep"].clone().requires_grad_()
    made = torch.relu(functional.conv2d(given["x"], given["w"], padding=1) + given["b"])
    made = functional.pad(made, (1, 1, 1, 1))
    result = functional.conv2d(made, weight, stride=stride, groups=6)
    given["grad"] = torch.randn_like(result)
    result.backward(given["grad"])
    wanted = (
        result - result.mean((2, 3), keepdim=True),
        result.amax((0, 2, 3)),
        result.sum(0),
        weight.grad,
    )

    def images(x, w, b, deep, grad):
        builder = relax.BlockBuilder.current()
        image = op.nn.relu(op.add(op.nn.conv2d(x, w, padding=[1] * 4), b))
        image = builder.emit(op.nn.pad(image, [0, 0, 0, 0, 1, 1, 1, 1]))
        by_deep = builder.emit(op.nn.conv2d(image, deep, strides=[stride] * 2, groups=6))
        shape, window = [int(n) for n in by_deep.ty.shape], ([stride] * 2, [0] * 4, [1, 1], 6)
        mean = op.broadcast_to(op.mean(by_deep, [2, 3], keepdims=True), shape)
        sums = op.max(by_deep, [0, 2, 3]), op.collapse_sum_to(by_deep, shape[1:])
        of_deep = of_weight(image, grad, sizes["deep"], window, builder)
        return relax.Tuple([op.subtract(by_deep, mean), *sums, of_deep])

    mod = program(images, **{n: (t.shape, "float32") for n, t in given.items()})
    for target in (f"llvm {BLAS} {SCHEDULES}", f"llvm {BLAS}", "llvm"):
        built = runtime.make(mod, BuildOptions(target))
        found = runtime.Compiled(built, target, mod["main"]).run(given)
        for one, its in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, its, **close(OUTPUT))
    text = runtime.dispatched(mod, f"llvm {BLAS} {SCHEDULES}").script()
    assert text.count("relascope.convolution channels-last") == 3
    turned = text.count("R.permute_dims")
    assert turned == 4  # into the first convolution, the gradient, and out of both that are images


def test_a_capture_with_channels_last_comes_so_to_a_backward_without_convolutions():
    kinds = dict.fromkeys(("made", "grad"), ((2, 3, 4, 5), "float32"))
    mod = program(lambda a, b: op.collapse_sum_to(op.multiply(a, b), [3, 4, 5]), **kinds)
    main = mod["main"].with_attr(channels_last.TAKES, ["made"])
    given = {name: torch.randn(2, 3, 4, 5) for name in ("made", "grad")}
    for target in (f"llvm {BLAS} {SCHEDULES}", "llvm"):
        built = runtime.make(tvm.IRModule({"main": main}), BuildOptions(target))
        (found,) = runtime.Compiled(built, target, main).run(given)
        torch.testing.assert_close(found, (given["made"] * given["grad"]).sum(0))


LIBRARY = f"llvm {BLAS} {SCHEDULES}"
SHAPE = (2, 60, 4, 16)  # batch, tokens, heads, size


def brought(x):
    return x.transpose(1, 2)


def plain(q, k, v):
    return (brought(q) @ brought(k).mT / math.sqrt(16)).softmax(-1) @ brought(v)


def back(q, k, v):
    return (brought(q) @ brought(k).mT * 0.25).softmax(-1).matmul(brought(v)).transpose(1, 2)


def masked(q, k, v, mask):
    return (mask + 0.3 * (brought(q) @ k.permute(0, 2, 3, 1))).softmax(-1) @ brought(v)


def fused(q, k, v):
    return functional.scaled_dot_product_attention(brought(q), brought(k), brought(v))


def unscaled(q, k, v):
    q, k, v = (t.reshape(2, 4, 60, 16) for t in (q, k, v))
    return (q @ k.mT).softmax(3) @ v


ATTENTIONS = {
    "plain": (plain, 3, "ttth"),
    "heads back": (back, 3, "tttt"),
    "mask": (masked, 4, "ttth"),
    "fused": (fused, 3, "ttth"),
    "heads first, no scale": (unscaled, 3, "hhhh"),
}


def symbols(mod):
    return [w for w in str(mod).split('"') if w.startswith(attention._NAME)]


def module_of(program, target):
    return runtime.dispatched(runtime.module_of(program, "main", program.mod["main"]), target)


def called(function, *inputs, target=LIBRARY, **how):
    return module_of(imported(Fn(function), *inputs, **how)[1], target)


def inputs(count):
    torch.manual_seed(0)
    return [*(torch.randn(SHAPE) for _ in range(3)), torch.randn(2, 1, 1, 60)][:count]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_an_attention_is_one_call(name):
    function, count, letters = ATTENTIONS[name]
    mod = called(function, *inputs(count))
    (symbol,) = symbols(mod)
    assert symbol.endswith(f" {letters}")
    assert "softmax" not in str(mod)
    assert "permute_dims" not in str(mod)


@pytest.mark.parametrize(("name", "dtype"), combinations(list(ATTENTIONS), ["float32", "float64"]))
def test_the_numbers_are_pytorchs(name, dtype):
    function, count, _ = ATTENTIONS[name]
    check(Fn(function), *inputs(count), dtype=dtype, target=LIBRARY)


def both(q, k, v):
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


OTHERS = {
    "weights are results": both,
    "another axis": lambda q, k, v: (q @ k.mT).softmax(-2) @ v,
    "a scale of each head": lambda q, k, v: (q @ k.mT * q[:1, :, :1, :1]).softmax(-1) @ v,
    "two masks": lambda q, k, v: (q @ k.mT + k.mean() + v.mean()).softmax(-1) @ v,
    "keys as they lie": lambda q, k, v: (q @ k.reshape(2, 4, 16, 60)).softmax(-1) @ v,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_products_stay_apart(name):
    given = [brought(t).contiguous() for t in inputs(3)]
    assert symbols(called(OTHERS[name], *given)) == []


def test_few_keys_other_libraries_and_dropout_keep_the_parts():
    assert symbols(called(plain, *[torch.randn(1, 3, 2, 16) for _ in range(3)])) == []
    long = [torch.randn(1, 512, 1, 64) for _ in range(3)]
    assert len(symbols(called(plain, *long))) == 1
    assert symbols(called(plain, *long, target=f"llvm {OPENBLAS}")) == []
    assert symbols(called(plain, *long, target=f"llvm {SCHEDULES}")) == []

    def dropped(q, k, v):
        return functional.dropout((q @ k.mT).softmax(-1)) @ v

    assert symbols(called(dropped, *inputs(3), training=True)) == []


TARGET = f"llvm {OPENBLAS}"


def built(product):
    a = te.placeholder(product.left, product.dtype, "a")
    b = te.placeholder(product.right, product.dtype, "b")
    kernel = te.create_prim_func([a, b, product.kernel(te, tirx, a, b)])
    run = tvm.compile(tvm.IRModule({"main": kernel}), parse("llvm"))["main"]
    return lambda *tensors: run(*map(tvm.runtime.from_dlpack, tensors))


@EVERY
def test_products_agree_with_pytorch(left, right, turn_a, turn_b, dtype):
    check_product(built, left, right, turn_a, turn_b, dtype)


class Layer(nn.Module):
    """Products of a batch, with a weight and of two results, one with an operand turned."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(96, 80), nn.Linear(96, 80)

    def forward(self, x):
        return torch.softmax(self.a(x) @ self.b(x).mT, -1) @ x


@pytest.mark.parametrize(
    ("target", "dtype"), combinations([TARGET, f"{TARGET} {SCHEDULES}"], ["float64", "float32"])
)
def test_a_program_agrees_with_pytorch_and_calls_no_python(target, dtype):
    torch.manual_seed(0)
    model, program = imported(Layer(), draw(4, 70, 96), dtype=dtype)
    text = native(module_of(program, target)).script()
    assert FUNCTIONS[dtype] in text
    assert "relascope.matmul" not in text
    assert max(errors(model, program, target).values()) <= LIMITS[dtype][0]


def test_a_product_of_unknown_shape_stays_with_pytorch():
    rows = tirx.Var("n", "int64")
    mod = program(relax.op.matmul, ((rows, 8), "float32"), ((8, 4), "float32"))
    left, right = draw(5, 8).numpy(), draw(8, 4).numpy()
    assert abs(compiled(mod, TARGET)(left, right) - left @ right).max() < OUTPUT


def test_tuning_knows_which_kernels_are_the_librarys():
    _, program = imported(Fn(torch.matmul), draw(40, 70), draw(70, 90))
    main = main_of(program)
    found = tuning.tunable(main, TARGET, Profiled(main, TARGET))
    (task,) = found.workloads
    assert task.program.symbol == "relascope.matmul_nn"
    assert found.calls == (task.key,)
    (site,) = found.profiled.kernels
    assert site.name.startswith("openblas_") and replaced(site.name) == "relascope.matmul_nn"
    assert replaced("fused_matmul_nn") == "fused_matmul_nn"


def test_targets_offer_it_where_it_is_installed(monkeypatch):
    names = [t.name for t in targets()]
    assert any(OPENBLAS in n.split() for n in names)
    monkeypatch.setattr(openblas, "_file", lambda: None)
    assert not any(OPENBLAS in way for way in openblas.cpu_ways("-libs=blas"))
    openblas.load.cache_clear()
    with refused("target", "OpenBLAS is not here", hint=OPENBLAS):
        openblas.load()


@pytest.mark.parametrize(
    ("vendor", "first"), [("GenuineIntel", "blas"), ("AuthenticAMD", "openblas")]
)
def test_the_first_choice_is_the_faster_library_for_the_processor(monkeypatch, vendor, first):
    monkeypatch.setattr(openblas, "cpu_info", lambda: {"vendor_id": vendor})
    best = list(openblas.cpu_ways("-libs=blas"))[-1]
    assert best == f"-libs={first} -schedules=relascope -records=relascope"


def test_other_libraries_stay_and_it_is_for_processors_alone():
    with pytest.raises(EngineError, match="CPU"):
        parse(f"cuda {OPENBLAS}")
    _, program = imported(Fn(torch.matmul), draw(40, 70), draw(70, 90))
    mod = runtime.module_of(program, "main", program.mod["main"])
    assert runtime.dispatched(mod, "llvm -libs=cudnn").same_as(mod)
