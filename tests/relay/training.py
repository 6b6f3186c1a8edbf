"""Training programs of modules, built and run, to compare with PyTorch."""

import torch
from numerics import imported, quiet  # noqa: F401
from torch import nn

from engine.building import BuildOptions
from engine.model import draw_masks
from engine.relay import runtime
from engine.relay.to_graph import to_graph
from passes.catalogue import default_pipeline, info
from passes.cut import cut
from passes.relay.split import split


def passes(program, names):
    """The program after some passes, given as a list of names or a pipeline's text."""
    for name in names.split("|") if isinstance(names, str) else names:
        program = info("relay", name).load()(program)
    return program


def joint(program):
    """The program after the default training pipeline."""
    return passes(program, [s.name for s in default_pipeline("relay", True)])


def halves(program, strategy="keep_all"):
    """A joint program, split by a strategy."""
    graph, exprs = to_graph(program)
    return split(program, graph, exprs, cut(graph, strategy).ids)


def values_of(model, program):
    """Everything that a training step reads but captures, by name."""
    inputs = dict(zip(model.input_names, model.inputs, strict=True))
    floating = [g for g in model.grad_outs() if g.is_floating_point()]
    return {
        **inputs,
        **model.parameters,
        **model.buffers,
        **draw_masks(program.masks, model.source.seed),
        **dict(zip(program.grad_outs, floating, strict=True)),
    }


def step(model, program, strategy="keep_all", target="llvm"):
    """Outputs and gradients of a joint program, split and built."""
    built = runtime.step(program, halves(program, strategy), BuildOptions(target, opt_level=1))
    values = values_of(model, program)
    outputs, captures = built.forward(values)
    return outputs, built.backward({**values, **captures})


def compare(model, outputs, gradients, output_limit, gradient_limit):
    """Every output and gradient against PyTorch's, in shape, dtype and numbers.

    A limit counts relative to the scale of PyTorch's tensor. A gradient that is zero but for
    rounding (softmax does not see the bias of its keys) must be as small in both.
    """
    expected = model.forward()
    assert len(outputs) == len(expected)
    for ours, theirs in zip(outputs, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert float(theirs.double().abs().max()) > 0
        worst = (ours.double() - theirs.double()).abs().max()
        assert worst <= output_limit * theirs.double().abs().max()
    wanted = model.gradients()
    assert list(gradients) == [n for n in (*model.input_names, *model.parameters) if n in wanted]
    assert set(gradients) == set(wanted)
    largest = max(float(g.abs().max()) for g in wanted.values())
    assert largest > 0
    noise = 50 * torch.finfo(next(iter(wanted.values())).dtype).eps * largest
    told = 0
    for name, theirs in wanted.items():
        ours = gradients[name]
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), name
        scale = float(theirs.abs().max())
        worst = float((ours - theirs).abs().max())
        assert worst <= max(gradient_limit * scale, noise), (name, worst, scale)
        told += scale > noise
    assert told, "no gradient is above the noise, so nothing was compared"


def bert_layer(hidden=32, heads=2, dropout=0.1, dtype=torch.float32):
    """A small BertLayer with its inputs (batch 2, 5 tokens)."""
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=hidden, num_attention_heads=heads, intermediate_size=2 * hidden,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        attn_implementation="eager",
    )  # fmt: skip
    layer = BertLayer(config).to(dtype)
    for parameter in layer.parameters():  # biases and norms are not to be zeros and ones
        nn.init.normal_(parameter, std=0.3)
    return layer, (torch.randn(2, 5, hidden, dtype=dtype), torch.zeros(2, 1, 1, 5, dtype=dtype))
