"""Small real models with inputs: what the page and the command line offer by name.

This file is metadata only: it imports no torch, so that the app's process may list the samples.
Each model is one file of this package with a function `make(batch, tokens)`; `build` imports it."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Sample:
    """One sample: its name, by which the command line and `ModelSource.model` call it and its file
    here is called, its title, its number of parameter elements, the names of its inputs in the
    order in which forward() takes them, the sizes used where none are given (None where there are
    none), and whether its gradient may be taken."""

    name: str
    title: str
    parameters: int
    inputs: tuple[str, ...]
    default_batch: int = 1
    default_tokens: int | None = None
    training: bool = True

    @property
    def summary(self) -> str:
        """What it is, for people."""
        return _SUMMARIES[self.name]


_LAYER = ("hidden_states", "attention_mask")
_IMAGES = ("pixel_values",)

_SUMMARIES = {
    "mlp": "Two linear layers with gelu, layer norm and dropout.",
    "micrograd": "Three neurons of two inputs each, every weight a scalar: for hand and paper.",
    "bert_self_attention": "The attention of one BERT-base layer: q, k, v, softmax, dropout; no "
    "projection after.",
    "bert_layer": "One layer of BERT-base: self-attention and feed-forward, with residuals and "
    "layer norms.",
    "bert": "BertModel: embeddings, 12 layers, pooler.",
    "super_resolution": "37 convolutions with residual connections, then a pixel shuffle: twice "
    "the resolution.",
    "gpt2_block": "One block of GPT-2 (width 768, 12 heads): causal attention and feed-forward.",
    "llama_block": "One LLaMA decoder layer, narrow (width 768, 12 heads over 4 of keys and "
    "values): rotary embedding, RMS norm, SwiGLU.",
    "vit": "ViT-Tiny with 4 layers for its 12: images of 64 x 64 in patches of 8, 10 classes.",
    "resnet": "Convolutions, batch norms and residual connections: images of 64 x 64, 10 classes.",
    "mobilenet_v2": "Depthwise convolutions in inverted residuals: images of 64 x 64, 10 classes. "
    "In training its float32 gradients differ widely between two ways to compute them, in PyTorch "
    "too.",
}
_ALL = (
    Sample("mlp", "MLP", 19_722, ("x",), 8),
    Sample("micrograd", "Micrograd", 9, ("x", "y")),
    Sample("bert_self_attention", "BERT self-attention", 1_771_776, _LAYER, 1, 14),
    Sample("bert_layer", "BERT layer", 7_087_872, _LAYER, 1, 14),
    Sample("bert", "BERT base", 109_482_240, ("input_ids", "attention_mask"), 1, 14),
    Sample("super_resolution", "Super-resolution", 1_301_196, ("image",)),
    Sample("gpt2_block", "GPT-2 block", 7_087_872, _LAYER, 1, 14),
    Sample("llama_block", "LLaMA block", 6_292_992, (*_LAYER, "cos", "sin"), 1, 14),
    Sample("vit", "Vision transformer", 1_831_498, _IMAGES, 2),
    Sample("resnet", "ResNet-18", 11_181_642, _IMAGES, 2),
    Sample("mobilenet_v2", "MobileNetV2", 2_236_682, _IMAGES, 4),
)

SAMPLES: dict[str, Sample] = {s.name: s for s in _ALL}


def build(
    name: str,
    batch: int | None = None,
    tokens: int | None = None,
    training: bool = False,
    seed: int = 0,
    dtype: str = "float32",
) -> "tuple[torch.nn.Module, tuple[torch.Tensor, ...]]":
    """Make a sample, a key of `SAMPLES`, with random weights, and inputs for it of these sizes
    (None: the sample's own), in train mode, with dropout, or eval mode.

    The same arguments give the same weights and inputs; torch's global generator is left as it was.
    Weights and floating inputs are drawn in float32 and then converted to `dtype`, "float32" or
    "float64", so that both hold the same numbers. Raises KeyError where there is no such sample;
    ValueError where a size is less than 1, or tokens are given to a sample without."""
    import torch

    sample = SAMPLES[name]
    if tokens is not None and sample.default_tokens is None:
        raise ValueError(f"the sample {name} has no tokens to choose")
    batch = sample.default_batch if batch is None else batch
    tokens = sample.default_tokens if tokens is None else tokens
    for what, size in (("batch", batch), ("tokens", tokens)):
        if size is not None and size < 1:
            raise ValueError(f"{what} must be at least 1, not {size}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module, inputs = import_module(f"{__name__}.{name}").make(batch, tokens)
    to = getattr(torch, dtype)
    module = module.to(to).train(training)
    return module, tuple(i.to(to) if i.is_floating_point() else i for i in inputs)
