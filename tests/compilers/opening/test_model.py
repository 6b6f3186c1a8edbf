"""Loading models, and PyTorch's own outputs, gradients and masks."""

import pickle
import random
import re
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from answers import quiet, refused
from quick import combinations
from relascope.core.errors import EngineError
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.faults import replay
from relascope.engine.jobs.accuracy import LIMITS
from relascope.engine.measure.compare import comparison
from relascope.engine.protocol.source import INPUTS, ModelSource, source_from_file, with_tensors
from relascope.engine.pytorch import submodules
from relascope.engine.pytorch.inputs.sets import inputs_of
from relascope.engine.pytorch.model import (
    Opened,
    flat_tensors,
    load_model,
    model_from_module,
    open_model,
    seeded,
)
from relascope.passes.program import Mask
from traces import Fn, Parts, forget_inputs, net, save

DTYPES = (torch.float32, torch.float64)


def traced(*about):
    """Imported where it is asked for: PyTorch's own compiler comes with it, in two seconds."""
    return import_module("relascope.engine.pytorch.trace_to_fx").trace_to_fx(*about)


def load(*args, **kwargs):
    return load_model(ModelSource(*args, **kwargs), quiet)


def test_a_program_is_written_alike_for_every_device():
    def larger(x):
        y = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        places = torch.arange(x.shape[-1], device=x.device)
        return y, nn.functional.unfold(x, 2), x[..., places]

    x = torch.empty(1, 3, 6, 6, device="meta")  # as a GPU's tensors, not the CPU's
    model = model_from_module(Fn(larger), ("x",), (x,), ModelSource("own"), quiet)
    trace = traced(model, lambda name: not name.startswith(("upsample", "im2col", "unfold")))
    made = [n.meta["val"] for n in trace.graph.nodes if n.op == "call_function"]
    assert len(made) > 10 and {t.device.type for t in made} == {"cpu"}


def test_seeds_say_what_is_drawn_and_leave_alone_what_gpus_start_with():
    """torch.manual_seed also says what GPUs that are used later are seeded with."""
    before = torch.cuda._lazy_seed_tracker.get_calls()
    with seeded(7):
        drawn = torch.rand(3)
    assert torch.cuda._lazy_seed_tracker.get_calls() == before
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(7)))
    single, double = load("mlp").grad_outs(), load("mlp", dtype="float64").grad_outs()
    assert torch.equal(single[0].double(), double[0])
    assert single[0].shape == (8, 10)


def test_all_operators_that_are_not_known_are_named():
    roots = [Fn(lambda x: torch.linalg.cholesky(x @ x.T + torch.eye(4))) for _ in range(2)]
    whole = nn.Sequential(*roots, Fn(lambda x: torch.linalg.inv(x + 9 * torch.eye(4)).tanh()))
    given = ("x",), (torch.randn(4, 4),), ModelSource("own"), quiet
    model = model_from_module(whole, *given)
    with refused(where="aten::linalg_cholesky in 0") as caught:
        traced(model, lambda name: "linalg" not in name, "Relay")
    assert caught.value.message == (
        "Relay's PyTorch frontend does not know these operators: aten::linalg_cholesky (made of "
        "aten::linalg_cholesky_ex, aten::_linalg_check_errors) 2 times, in 0, in 1; "
        "aten::linalg_inv (made of aten::linalg_inv_ex, aten::_linalg_check_errors) in 2."
    )
    assert re.search(r", test_model\.py:\d+$", caught.value.where) and not caught.value.instead


def layer():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


class Odd(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.layer, self.run = layer(), run

    def forward(self, x):
        x = self.layer(x)
        return self.run(x) + x


def several(odd):
    def run(m, x):
        x = m.first(x)
        for layer in m.layers:
            x = layer(x)
        return m.last(x)

    return Parts(run, first=layer(), layers=nn.ModuleList([layer(), Odd(odd)]), last=layer())


def opens(path, module, x, known=lambda name: True):
    if path.suffix:
        model = load_model(source_from_file(save(module, (x,), path)), quiet)
    else:
        model = model_from_module(module, ("x",), (x,), ModelSource("own"), quiet)
    with model.flat.naming_parts(model.module):
        traced(model, known, "Relay")


ODD = {
    "linalg": lambda x: torch.linalg.cholesky(x @ x.T + 9 * torch.eye(4)).sum(),
    "poisson": lambda x: torch.poisson(x.abs()).sum(),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,)),
    "arange": lambda x: torch.arange(x[x > 0].shape[0]).sum(),
}


@pytest.mark.parametrize("read", [lambda x: x, lambda x: (x, x[:1]), lambda x: x.sum()])
def test_rows_that_a_mask_chooses_are_refused_where_values_decide_a_result(read):
    choosing = Fn(lambda x: read(x[x > 0]))
    with refused("operator", "depends on values", where="aten::index at the top"):
        opens(Path("model"), choosing, torch.randn(4, 4), lambda name: "index" not in name)


# PyTorch traces no torch.cond.
FORMS = [(odd, end) for odd in ODD for end in ("", ".pt", ".pt2") if (odd, end) != ("cond", ".pt")]


@pytest.mark.parametrize(("odd", "ending"), FORMS)
def test_a_refusal_names_the_line_and_submodules_that_open(odd, ending, tmp_path):
    module, x = several(ODD[odd]).eval(), torch.randn(4, 4)
    known = lambda name: not re.search("linalg|poisson|index", name)  # noqa: E731
    with pytest.raises(EngineError) as caught:
        opens(tmp_path / f"model{ending}", module, x, known)
    error, lines = caught.value, Path(__file__).read_text(encoding="utf-8").splitlines()
    place, _, line = error.where.rpartition(", test_model.py:")
    assert place.split()[-1] == "layers.1"
    # A program has the lines of forward() alone.
    said = "return self.run(x) + x" if ending == ".pt2" else f'"{odd}": lambda x: '
    assert said in lines[int(line) - 1]
    # What runs behind that which cannot be traced, nobody knows.
    stops = odd == "cond" or (odd, ending) == ("arange", ".pt2")
    last = "layers.1.layer" if stops else "last"
    assert {*error.instead[:3]} == {"first", "layers.0", last}
    source = ModelSource("own")
    if ending:
        source = source_from_file(tmp_path / f"model{ending}")
    whole = open_model(source, quiet) if ending else Opened(module, ("x",), (x,))
    for path in error.instead[:3]:
        part = submodules.cut_out(whole, replace(source, module=path))
        about = part.module, part.names, part.inputs, source, quiet
        assert model_from_module(*about, call=part.call).forward()[0].shape == (4, 4)


@pytest.mark.parametrize("ending", ["", ".pt"])
def test_experts_are_refused_with_the_form_that_opens(ending, tmp_path):
    qwen = import_module("transformers.models.qwen2_moe.modeling_qwen2_moe")
    config = qwen.Qwen2MoeConfig(hidden_size=8, moe_intermediate_size=4, num_experts=4)
    block, known = qwen.Qwen2MoeSparseMoeBlock(config).eval(), lambda name: "nonzero" not in name
    config._experts_implementation = "eager"
    with refused(match=r"nonzero.* depends on values", hint="batched_mm"):
        opens(tmp_path / f"model{ending}", block, torch.randn(1, 5, 8), known)
    config._experts_implementation = "batched_mm"
    opens(tmp_path / f"other{ending}", block, torch.randn(1, 5, 8), known)


def product(weight, bias, by_row, reduced):
    """Packed weights of whole numbers up to 63, of which no sum of two products saturates."""
    quantize, about = torch.quantize_per_tensor, (weight.abs().max().item() / 63, 0)
    if by_row:
        zeros = torch.zeros(len(weight), dtype=torch.int64)
        quantize, about = torch.quantize_per_channel, (weight.abs().amax(1) / 63, zeros, 0)
    packed = torch.ops.quantized.linear_prepack(quantize(weight, *about, torch.qint8), bias)
    run = torch.ops.quantized.linear_dynamic
    return Parts(lambda m, x: run(x, m.packed, reduced), packed=packed)


INT8 = {
    "usual": lambda *size: torch.randn(size),
    "zeros": torch.zeros,
    "alike": lambda *size: torch.full(size, -2.5),
    "negative": lambda *size: -torch.rand(size),
    "far from 0": lambda *size: 100 + torch.rand(size),
    "tiny": lambda *size: 1e-6 * torch.randn(size),
    "near nothing": lambda *size: 1e-38 * torch.randn(size),
}


@pytest.mark.parametrize(("drawn", "by_row"), combinations(list(INT8), [False, True]))
def test_products_of_int8_are_pytorchs(drawn, by_row):
    for size in ((1, 7), (3, 5), (2, 3, 2000), (2, 1, 3, 4)):
        torch.manual_seed(size[-1])
        weight, bias, x = torch.randn(6, size[-1]), torch.randn(6), INT8[drawn](*size)
        module = product(weight, bias if size[-1] < 9 else None, by_row, len(size) < 4)
        model = model_from_module(module, ("x",), (x,), ModelSource("own"), quiet)
        trace = traced(model, lambda name: True)
        (ours,) = torch.fx.Interpreter(GraphModule(trace.constants, trace.graph)).run(x)
        # Kernels may round once more between factor and term.
        most = 2.0**-23 * (module(x).abs() + bias.abs())
        assert ((ours - module(x)).abs() <= most).all()


@pytest.mark.parametrize("ending", ["", ".pt"])
def test_other_quantized_models_are_refused_with_what_to_do(ending, tmp_path):
    def static(m, x):
        return m.fc(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)).dequantize()

    module = Parts(static, fc=torch.ao.nn.quantized.Linear(4, 3)).eval()
    with refused(match="quantize", hint="quantize it dynamically to int8"):
        opens(tmp_path / f"model{ending}", module, torch.randn(2, 4))


def test_int8_is_run_as_pytorch_can():
    module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)), {nn.Linear})
    given = module, ("x",), (torch.randn(2, 4),)
    with refused("operator", "no gradient for quantized::linear_dynamic"):
        model_from_module(*given, ModelSource("own", training=True), quiet)
    with refused("operator", "only on the CPU"):
        model_from_module(*given, ModelSource("own"), quiet).on("cuda")


def test_no_submodule_is_named_where_the_model_does_not_run():
    with pytest.raises(EngineError, match="cannot be multiplied") as caught:
        opens(Path("live"), several(lambda x: x @ torch.ones(7, 7)), torch.randn(4, 4))
    assert caught.value.instead == ()
    told = pickle.loads(pickle.dumps(caught.value))
    assert told.to_json() == caught.value.to_json() and told.instead == ()


# What a model is run on.


def test_other_inputs_keep_masks_and_stay_in_range():
    mask = torch.tensor([[0.0, 0.0, -1e30]])
    ids, lengths = torch.arange(30, 90).reshape(3, 20), torch.tensor([4, 4, 4])
    drawn = torch.rand(3, 8)
    samples = (mask, ids, lengths, drawn, mask.bool(), drawn.double())
    found = {k: inputs_of(k, samples, 0) for k in INPUTS[1:]}
    for kind, (kept, other, same, floats, bools, doubles) in found.items():
        assert kept is mask and same is lengths and bools is samples[4]
        assert (other.shape, other.dtype) == (ids.shape, ids.dtype)
        assert int(other.min()) >= 30 and int(other.max()) <= 89
        assert (floats.shape, floats.dtype, doubles.dtype) == (drawn.shape, *DTYPES)
        again = inputs_of(kind, (drawn.double(), ids, lengths, drawn), 0)[0].float()
        single = inputs_of(kind, (drawn,), 0)[0]
        assert torch.allclose(again, single, 0, 0, equal_nan=True), "the same in each dtype"
    size = {k: float(v[3].abs().max()) for k, v in found.items()}
    assert size["tiny"] < 1e-28 < 1.0 < size["normal"] < 10 < 1e3 < size["cancelling"]
    assert size["large"] > 1e4
    pairs = found["cancelling"][3].reshape(-1, 2)
    assert float(pairs.sum(1).abs().max()) < 10, "neighbours cancel"
    edges = inputs_of("edges", (torch.rand(3, 30),), 0)[0]
    assert {0.5, -0.5, 1.0, 0.0, 6.0} <= set(edges.flatten().tolist())
    ties = edges.reshape(-1, 2)
    assert torch.equal(ties[:, 0], ties[:, 1]), "neighbours are ties"
    middle = edges.double().abs()
    assert len(middle[(middle > 0.29) & (middle < 0.5)].unique()) == 4
    assert bool((edges.signbit() & (edges == 0)).any()), "the negative zero"
    assert set(found["edges"][1].flatten().tolist()) == {30, 89}
    near = found["overflow"][3]
    assert 88 <= near.abs().min() <= near.abs().max() <= 89 and near.sign().unique().numel() == 2
    assert bool(near.exp().isinf().any()) and not bool(near.isinf().any())
    huge = found["huge"][3]
    assert bool(huge.isfinite().all()) and bool((3 * huge).abs().isinf().any())
    odd = inputs_of("nonfinite", (torch.rand(8, 64),), 0)[0]
    assert bool(odd.isnan().any()) and {float("inf"), -float("inf")} <= set(odd.flatten().tolist())
    assert int(odd.isfinite().all(1).sum()) >= 6, "most rows stay finite"


def test_integers_leave_their_range_only_where_the_model_runs_on_them():
    """Of 10 ids, 6 places, integers that are free, zeros and ones, and a mask of them."""

    def module(ids, places, free, bits, mask):
        looked = nn.functional.embedding(ids, table), rows[places], rows[(free % 5).clamp(0, 5)]
        return sum(looked), free - 1, bits.sum(-1) + mask

    draw, tried = torch.Generator().manual_seed(0), []
    table, rows = torch.ones(10, 4), torch.ones(6, 4)
    sizes = {"ids": 10, "places": 6, "free": 5, "bits": 2}
    samples = {n: torch.randint(0, most, (4, 8), generator=draw) for n, most in sizes.items()}
    samples["mask"] = samples["bits"][:, 0].clone()

    def runs(inputs):
        tried.append(inputs)
        try:
            module(*inputs)
        except IndexError:
            return False
        return True

    known = {"ids": 10, "places": 6}
    about = tuple(samples.values()), 0, tuple(samples), known
    found = {k: dict(zip(samples, inputs_of(k, *about, runs), strict=True)) for k in INPUTS[1:]}
    for kind, one in found.items():
        module(*one.values())
        assert int(one["ids"].min()) >= 0 and int(one["ids"].max()) <= 9
        assert torch.equal(one["mask"], samples["mask"])
        assert all(t.is_contiguous() == (kind != "edges") for t in one.values())
        if kind not in ("large", "edges"):
            assert int(one["free"].min()) >= 0 and int(one["free"].max()) <= 4
            assert one["bits"] is samples["bits"]
    large, edges = found["large"], found["edges"]
    for name in ("free", "bits"):
        assert int(large[name].abs().max()) > 2**53 and bool((large[name] % 2 == 1).all())
        assert {2**53 + 1, -(2**53) - 1, 2**31} <= set(edges[name].flatten().tolist())
    assert int(large["places"].min()) >= 0 and int(large["places"].max()) <= 5
    assert set(edges["places"].flatten().tolist()) == {-6, -1, 0, 5}
    refused = [t for t in tried if bool((t[0] < 0).any())]
    assert refused, "an embedding refuses what counts from the end"
    # What nobody can try keeps its range, and small types have small edges.
    kept = dict(zip(samples, inputs_of("large", *about), strict=True))
    assert int(kept["free"].max()) <= 4
    (small,) = inputs_of("edges", (torch.arange(30, dtype=torch.uint8),), 0, ("x",), {}, runs=bool)
    assert set(small.tolist()) == {0, 1, 2}


def test_integers_are_compared_exactly_at_any_size():
    ours, theirs = torch.tensor([2**53 + 1, 7]), torch.tensor([2**53, 7])
    for spread in (True, False):
        found = comparison("output 0", ours, theirs, 2.0**53, 2.0**53, spread)
        assert found.max_abs == 1.0
        assert LIMITS["float64"].over(found) and not LIMITS["float32"].over(found)
    gap = replay.difference(theirs.numpy(), ours.numpy())
    assert gap.max_abs == 1.0 and gap.max_rel > LIMITS["float64"].outputs
    assert replay.difference(theirs.numpy(), theirs.numpy()).max_abs == 0.0


# Samples.


def test_train_mode_is_random_but_seeded_and_leaves_the_generator_alone():
    one, same = load("mlp", training=True), load("mlp", training=True)
    assert torch.equal(one.forward()[0], one.forward()[0])
    assert torch.equal(one.forward()[0], same.forward()[0])
    assert not torch.equal(one.forward()[0], load("mlp").forward()[0])
    torch.manual_seed(9)
    expected = torch.rand(2)
    torch.manual_seed(9)
    one.forward()
    one.gradients()
    one.grad_outs()
    draw_masks([Mask("m", 0.5, (3,), "float32")], 0)
    assert torch.equal(torch.rand(2), expected)


# Files.


@pytest.fixture
def trace(tmp_path):
    return save(*net(), tmp_path / "net.pt")


def test_a_file_is_loaded_with_its_recorded_inputs(trace):
    module, _ = net()
    model = load_model(source_from_file(trace), quiet)
    assert model.input_names == ("x", "shift")
    assert [tuple(t.shape) for t in model.inputs] == [(3, 8), (3, 8)]
    expected = flat_tensors(module(*model.inputs))
    assert all(map(torch.allclose, model.forward(), expected))
    # A tied weight is one parameter.
    names = [n for n, _ in module.named_parameters() if n not in ("unused", "head.weight")]
    assert list(model.parameters) == names
    assert list(model.buffers) == ["blocks.0.scale", "blocks.1.scale"]
    assert len(list(model.flat.graph.inputs())) == 2 + len(model.flat.tensors)
    # Modules keep their whole path.
    scopes = {(o.scope, o.operator) for o in model.flat.origins.values()}
    inner = {("blocks.0.fc", "aten::linear"), ("blocks.1.norm", "aten::layer_norm")}
    assert scopes >= inner | {("head", "aten::linear"), ("", "aten::add")}
    # Types that are given win, and may be named.
    given = source_from_file(trace, "shift=5x8, x=5x8:float32", dtype="float64")
    model = load_model(given, quiet)
    assert model.outputs_flat[0].shape == (5, 8)
    assert {t.dtype for t in (*model.forward(), *model.parameters.values())} == {torch.float64}


def test_a_file_without_recorded_inputs_or_with_wrong_ones_says_so(trace):
    bare = forget_inputs(trace)
    with refused("input", "x, shift", hint="x="):
        load_model(source_from_file(bare), quiet)
    assert load_model(source_from_file(bare, "3x8, 3x8"), quiet).forward()[0].shape == (3, 8)
    wrong = {"3x8": "takes 2 inputs (x, shift), not 1", "y=3x8, x=3x8": "no input 'y'"}
    for text, words in wrong.items():
        with refused("input", says=words, hint="type per input"):
            load_model(source_from_file(trace, text), quiet)
    with refused("input", "mat1 and mat2", where="aten::linear in fc", says="x: float32[3, 9]"):
        load_model(source_from_file(trace, "3x9, 3x8"), quiet)
    source = source_from_file(trace)
    assert source.digest
    with pytest.raises(EngineError, match="changed"):
        load_model(replace(source, digest="0" * 32), quiet)


def test_files_that_are_no_traces(tmp_path):
    text, weights = tmp_path / "text.pt", tmp_path / "weights.pt"
    text.write_text("hello")
    torch.save({"a": torch.ones(2)}, weights)
    for path in (text, weights):
        with refused("file", "not a TorchScript trace", where=path.name):
            load_model(source_from_file(path), quiet)
    text.rename(program := tmp_path / "text.pt2")
    with refused("file", where=program.name):
        load_model(source_from_file(program), quiet)
    with refused(match="no file"):
        source_from_file(tmp_path / "none.pt")
    with refused(match="neither a sample nor a file"):
        load("bert_lair")


def test_dropout_is_what_was_traced(tmp_path):
    on = save(*net(training=True), tmp_path / "on.pt")
    off = save(*net(), tmp_path / "off.pt")
    with refused(match="train mode", where="aten::dropout in blocks.0.drop"):
        load_model(source_from_file(on), quiet)
    model = load_model(source_from_file(on, training=True), quiet)
    module, _ = net(training=True)
    torch.manual_seed(0)
    assert all(map(torch.allclose, model.forward(), flat_tensors(module(*model.inputs))))
    notes = load_model(source_from_file(off, training=True), quiet).notes
    assert any("eval mode" in n for n in notes)
    layers = nn.GRU(4, 4, 2, dropout=0.5).train()
    inside = save(layers, (torch.randn(3, 2, 4),), tmp_path / "inside.pt")
    with refused(match="train mode", where="aten::gru at the top"):
        load_model(source_from_file(inside), quiet)


def test_running_statistics_are_put_back(tmp_path):
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    path = save(module, (torch.randn(8, 4),), tmp_path / "norm.pt")
    model = load_model(source_from_file(path, training=True), quiet)
    before = {n: b.clone() for n, b in model.module.named_buffers()}
    model.forward()
    model.gradients()
    assert all(torch.equal(b, before[n]) for n, b in model.module.named_buffers())


def wasting(x):
    nn.functional.dropout(x, 0.5, training=True)
    return nn.functional.scaled_dot_product_attention(x, x, x)  # which draws nothing


def outside(x):
    return x * torch.poisson(x.abs())


@pytest.mark.parametrize(
    ("run", "words", "where"),
    [
        (wasting, "outside the operators", "forward()"),
        (outside, "aten::poisson draws random numbers", "aten::poisson at the top"),
    ],
)
def test_draws_that_masks_cannot_repeat_are_refused(run, words, where):
    source = ModelSource("module", training=True)
    with refused("operator", words, where=where):
        model_from_module(Fn(run).train(), ("x",), (torch.randn(3, 4),), source, quiet)


class Packed(nn.LSTM):
    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]))
        return super().forward(packed)[0].data


def test_a_file_is_refused_for_what_draws_alone(tmp_path):
    x = torch.randn(3, 2, 4)
    quiet_ones = nn.Sequential(
        nn.RReLU(inplace=True), nn.AlphaDropout(), Packed(4, 4, 2, dropout=0.5)
    )
    source = source_from_file(save(quiet_ones.eval(), (x,), tmp_path / "quiet.pt"))
    assert load_model(source, quiet).forward()
    path = save(Packed(4, 4, 2, dropout=0.5).train(), (x,), tmp_path / "drawing.pt")
    with refused("operator", "aten::lstm draws random numbers"):
        load_model(source_from_file(path, training=True), quiet)


@pytest.mark.parametrize("draw", [random.random, numpy.random.rand])
def test_random_numbers_of_others_are_said_to_stay(draw):
    other = Fn(lambda x: x * draw())
    opened = model_from_module(other, ("x",), (torch.ones(2),), ModelSource("module"), quiet)
    assert any("Python or NumPy, not PyTorch" in note for note in opened.notes)


@pytest.mark.parametrize(
    ("function", "said", "where"),
    [
        (lambda x: x[:, :0].sum() + x, "without elements", "aten::slice in 1"),
        (lambda x: x[:0], "without elements", "aten::slice in 1"),
        (lambda x: torch.full((3,), True) + x, "has no aten::full", "forward()"),
        (lambda x: x.clone().resize_(3), "finds no path", "forward()"),
        (lambda x: x @ x, "shapes cannot be multiplied", "1"),
        (lambda x: torch.nn.functional.embedding(x.long() - 9, x), "out of range", "1"),
    ],
)
def test_what_no_trace_holds_is_refused_with_its_place(function, said, where):
    module, x = nn.Sequential(nn.Identity(), Fn(function)), torch.randn(2, 3)
    with refused("operator", said, where=where) as caught:
        model_from_module(module, ("x",), (x,), ModelSource("own"), quiet)
    # In the model's own source, where it is known.
    assert re.fullmatch(r"(test_model\.py:\d+)?", caught.value.where.partition(", ")[2])
    assert torch.equal(module[0](x), x)  # no hook of the tracing is left


def test_inputs_are_named_apart_and_as_many_as_there_are(tmp_path):
    class Clash(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(torch.randn(3))

        def forward(self, x):
            return x * self.x

    path = save(Clash(), (torch.randn(3),), tmp_path / "clash.pt")
    model = load_model(source_from_file(path), quiet)
    assert model.input_names == ("x_",)
    assert list(model.parameters) == ["x"]
    module, inputs = Fn(lambda a, b, c: a + b * c), tuple(torch.randn(2) for _ in range(3))
    model = model_from_module(module, ("a", "b", "c"), inputs, ModelSource("any"), quiet)
    assert torch.equal(model.forward()[0], module(*inputs))


def test_a_file_of_nested_modules_is_run_flat(tmp_path, monkeypatch):
    """torch takes time that is cubic in the depth to run such a module."""
    module = torch.nn.Linear(4, 4)
    for _ in range(60):
        module = nn.Sequential(module, Fn(lambda x: x + 1))
    path = save(module.eval(), (torch.ones(2, 4),), tmp_path / "nested.pt")
    with monkeypatch.context() as patched:
        patched.delattr(torch.nn.Module, "__call__")
        model = load_model(source_from_file(path), quiet)
        found = model.forward()
        assert set(model.gradients()) == {"input", *model.parameters}
    assert len([n for n in model.flat.graph.nodes() if n.kind() == "aten::add"]) == 60
    assert torch.allclose(found[0], module(*model.inputs))


@torch.jit.script
def double(x):
    return x * 2


def inner(m, cache, last):
    (keys, values), *_ = cache
    return m.fc(torch.cat([double(keys), values], 0)) * last


class Nests(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Parts(inner, fc=nn.Linear(4, 3))

    def forward(self, x, cache, batch, steps):
        made = self.inner(cache, steps[-1])
        return {"sum": made + x, "image": batch["image"][0] * steps[0]}, list(steps)


NESTED = (
    torch.randn(4, 3),
    ((torch.randn(2, 4), torch.randn(2, 4)), (torch.randn(1), torch.randn(1))),
    {"image": (torch.randn(3),)},
    [torch.randn(3), torch.randn(3)],
)
LEAVES = ["x", *(f"cache_{i}_{j}" for i in (0, 1) for j in (0, 1))]
LEAVES += ["batch_image_0", "steps_0", "steps_1"]


def test_inputs_in_tuples_lists_and_dicts_are_inputs_of_their_own(tmp_path):
    path = save(Nests(), NESTED, tmp_path / "nests.pt", strict=False)
    tensors = torch.utils._pytree.tree_leaves(NESTED)
    torch.save(dict(zip(LEAVES, tensors, strict=True)), tmp_path / "inputs.pt")
    source = with_tensors(source_from_file(path), [tmp_path / "inputs.pt"])
    model = load_model(source, quiet)
    assert list(model.input_names) == LEAVES
    expected = flat_tensors(torch.jit.load(path)(*NESTED))
    for ours, theirs in zip(model.forward(), expected, strict=True):
        assert torch.equal(ours, theirs)
    of_inner = replace(source, module="inner")
    alone = submodules.load(of_inner, quiet, partial(open_model, of_inner, quiet))
    assert alone.forward()[0].shape == (4, 3)
    with refused("input", "takes 8 inputs .*, not 2"):
        load_model(source_from_file(path, "x=4x3:float32, 2x4:float32"), quiet)

    class Unread(nn.Module):
        def forward(self, x, batch):
            return x * 2

    inputs = torch.ones(2), {"image": torch.ones(2)}
    path = save(Unread(), inputs, tmp_path / "x.pt", strict=False)
    with refused("input", "not a tensor: batch: Dict"):
        load_model(source_from_file(path, "x=2:float32"), quiet)


def turned(x):
    """Draws as many as PyTorch draws in another way where they lie in order."""
    return x.t() + torch.randn_like(x.t()) + torch.rand_like(x)


def test_draws_that_lie_in_another_order_are_repeated():
    source = ModelSource("module", seed=5)
    model = model_from_module(Fn(turned), ("x",), (torch.zeros(40, 40),), source, quiet)
    masks = [draw for _, draw in model.flat.draws()]
    made = draw_masks([replace(m, name=str(i)) for i, m in enumerate(masks)], 5)
    assert torch.equal(made["0"] + made["1"], model.forward()[0])
