"""What TVM's importer or a pass of its own gets wrong without a word: each trap has a test here.

Where TVM's own does it still, that is tested too: on the day it does not, our part can go."""

from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from tvm import relax

from answers import refused
from gradients import Fn, imported
from limits import OUTPUT, close, rounding
from relascope.core.errors import EngineError
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import load_model
from relascope.engine.pytorch.operators.recurrent import recurrent
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.frontend.importer import import_model
from relascope.passes.relax.builtin import decompose_inference, decompose_training
from relascope.passes.relax.ir.program import RelaxProgram
from relax_modules import check, draw, errors, program, quiet
from traces import Parts, net, save

# Dropout that is on becomes nothing.


def test_dropout_is_masks_in_order_in_train_mode_and_nothing_in_eval_mode():
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 4), nn.Dropout(0.25))
    _, program, _ = check(module, draw(3, 8), training=True)
    assert [(m.rate, m.shape) for m in program.masks] == [(0.5, (3, 8)), (0.25, (3, 4))]
    assert [str(p.name) for p in program.main.params][-2:] == [m.name for m in program.masks]
    _, program, _ = check(nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 4)), draw(3, 8))
    assert program.masks == ()


# Running statistics: the update is lost, or the batch's are not taken.


def test_batch_norms_take_their_statistics_or_return_the_updates():
    module = nn.BatchNorm2d(3)
    module.running_mean.normal_()
    module.running_var.uniform_(1, 2)
    check(module, draw(2, 3, 4, 4), dtype="float64")
    read, x = {"norm": nn.BatchNorm1d(3)}, draw(5, 3)  # before or after it moves its mean
    with refused("operator", "running statistics", where="aten::batch_norm in norm"):
        imported(Parts(lambda m, x: m.norm(x) + m.norm.running_mean, **read), x, training=True)
    check(Parts(lambda m, x: m.norm.running_mean * 2 + m.norm(x), **read), x, training=True)


# DecomposeOpsForTraining and DecomposeOpsForInference do not look at a batch norm's mode.


def batch_norm(training):
    def first(*arguments):
        made = relax.op.nn.batch_norm(*arguments, axis=1, training=training)
        return relax.TupleGetItem(made, 0)

    sizes = (2, 3, 4, 4), *[(3,)] * 4
    inputs = tuple(f"x{i}" for i in range(5))
    return RelaxProgram(program(first, *((s, "float32") for s in sizes)), {}, inputs, 1)


@pytest.mark.parametrize(
    ("run", "training", "words"),
    [(decompose_training, False, "eval mode"), (decompose_inference, True, "train mode")],
)
def test_a_batch_norm_of_the_other_mode_is_refused(run, training, words):
    with refused("pass", says=words) as caught:
        run(batch_norm(training))
    assert "nn.batch_norm" in caught.value.where
    assert "nn.batch_norm" not in str(run(batch_norm(not training)).mod)


def test_the_refusal_names_the_module():
    model, program = imported(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), draw(2, 3))
    with refused(where="nn.batch_norm from aten::batch_norm in 1"):
        decompose_training(program)
    assert max(errors(model, decompose_inference(program)).values()) <= OUTPUT


def test_tvms_own_pass_still_changes_a_batch_norm_in_eval_mode():
    changed = relax.transform.DecomposeOpsForTraining()(batch_norm(False).mod)
    assert "R.variance" in str(changed)


# Products are computed in float32, whatever their operands are.


@pytest.mark.parametrize("target", ["llvm", "llvm -libs=blas"])
def test_products_keep_float64(target):
    products = Fn(
        lambda x, y: (
            *(torch.mm(x, y), torch.addmm(x[:, :3], x, y, beta=0.5, alpha=2), x @ y),
            *(torch.bmm(x[None], y[None]), (x @ x.t()) @ (y @ (y.t() @ y))),
        )
    )
    _, program, found = check(products, draw(4, 4), draw(4, 3), dtype="float64", target=target)
    assert len(found) == 5
    assert "float32" not in str(program.mod)


# Options that are not read.


def test_an_option_by_position_that_no_converter_reads_is_refused():
    pool = Fn(lambda x: nn.functional.avg_pool2d(x, 2, divisor_override=3))
    with refused("operator", says="divisor_override"):
        imported(pool, draw(1, 2, 6, 6))


# Dtypes: Relax promotes by rules of its own, and has no kernels for bool and some for integers.


def test_a_number_in_a_file_is_a_float64_tensor(tmp_path):
    module = Fn(lambda x: 0.5 * x + nn.functional.gelu(x * 3) / 7 + (x > 0.25))
    path = save(module, (draw(2, 4),), tmp_path / "traced.pt")
    model = load_model(ModelSource(str(path)), quiet)
    program = import_model(model, quiet)
    assert "float64" not in str(program.mod)
    assert max(errors(model, program).values()) <= OUTPUT


def test_the_nearest_pixel_is_pytorchs_and_instance_norms_have_their_epsilon():
    def made(x):
        sizes = {"size": 5}, {"size": 3}, {"scale_factor": 1.7}, {"size": 8}
        norms = [nn.functional.instance_norm(x, eps=e) for e in (1e-5, 1e-1)]
        return *norms, *(nn.functional.interpolate(x, **size) for size in sizes)

    check(Fn(made), draw(3, 2, 4, 4))


# What TVM or PyTorch raises is a sentence.


def test_values_that_decide_a_shape_are_refused_or_known():
    with pytest.raises(EngineError, match="depends on values") as caught:
        imported(nn.Sequential(Fn(torch.nonzero)), draw(3))
    assert "nonzero" in caught.value.where
    check(Fn(lambda x: x[..., : int(torch.tensor([7, 3]).min())] * 2), draw(2, 5))


def test_a_size_that_a_trace_computes_in_floats():
    def padded(x):  # to what a convolution with a stride of 2 takes, as TensorFlow has it
        size = x.shape[-1]
        if not isinstance(size, torch.Tensor):  # while nothing is traced
            return torch.nn.functional.pad(x, (0, 1), value=0.0)
        around = torch.clamp(((size / 2).ceil() - 1) * 2 + 3 - size, min=0)
        before = around // 2
        return torch.nn.functional.pad(x, (before, around - before), value=0.0)

    check(Fn(padded), draw(2, 3, 6))


@pytest.mark.parametrize(
    ("name", "training"), [("net.pt", False), ("net.pt2", False), ("net.pt2", True)]
)
def test_names_order_and_provenance(tmp_path, name, training):
    module, inputs = net(training)
    path = save(module, inputs, tmp_path / name)
    model = load_model(ModelSource(str(path), training=training), quiet)
    program = import_model(model, quiet)
    graph, variables = to_graph(program)
    graph.validate()
    assert set(variables) == set(graph.by_id)
    names, masks = [str(p.name) for p in program.main.params], [m.name for m in program.masks]
    assert names == [*model.input_names, *model.parameters, *model.buffers, *masks]
    read = [n for n, _ in module.named_parameters() if n not in ("unused", "head.weight")]
    assert list(model.parameters) == read and len(masks) == (2 if training else 0)
    assert {n.scope for n in graph if n.op == "nn.layer_norm"} == {"blocks.0.norm", "blocks.1.norm"}
    assert {n.source for n in graph if n.op == "matmul"} == {"aten::linear"}
    assert max(errors(model, program).values()) <= OUTPUT


KINDS = {
    "lstm": nn.LSTM,
    "projected": partial(nn.LSTM, proj_size=3),
    "gru": nn.GRU,
    "rnn_tanh": nn.RNN,
    "rnn_relu": partial(nn.RNN, nonlinearity="relu"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_pytorchs(kind):
    torch.manual_seed(0)
    for layers, bias, both, first in product((1, 2), *[(False, True)] * 3):
        about = {"bias": bias, "bidirectional": both, "batch_first": first, "dtype": torch.float64}
        module = KINDS[kind](5, 7, layers, **about)
        x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
        states = (1 + both) * layers, x.shape[0 if first else 1]
        sizes = 3 if kind == "projected" else 7, 7
        state = [torch.randn(*states, n, dtype=torch.float64) for n in sizes]
        begin = tuple(state) if isinstance(module, nn.LSTM) else state[0]
        y, ends = module(x, begin)
        wanted = (y, *(ends if isinstance(ends, tuple) else (ends,)))
        base, weights = kind.replace("projected", "lstm"), module._flat_weights
        made = recurrent(base, x, begin, weights, bias, layers, 0.0, True, both, first)
        leaves = (x, *module.parameters())
        one, other = (
            (*r, *torch.autograd.grad(sum((t.cos() * 2).sum() for t in r), leaves))
            for r in (wanted, made)
        )
        torch.testing.assert_close(other, one, **close(rounding("float64", 2**10, 10)))
