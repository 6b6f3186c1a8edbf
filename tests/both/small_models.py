"""Samples of width 32, for tests in which a width of 768 is not the point.

Importing this lists them beside the samples, in this process alone: `small_bert`, `small_gpt2` and
`small_llama` have the operators of `bert_layer`, `gpt2_block` and `llama_block`."""

import sys
from dataclasses import replace
from functools import partial
from types import ModuleType
from unittest.mock import patch

import torch
from torch import nn
from transformers import BertConfig, GPT2Config, LlamaConfig
from transformers.models.bert.modeling_bert import BertLayer

from relascope import samples
from relascope.samples import bert_layer, gpt2_block, llama_block
from relascope.samples.weights import stir

WIDTH, HEADS = 32, 4

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


def _bert(batch: int, tokens: int) -> Made:
    sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": 2 * WIDTH}
    module = BertLayer(BertConfig(**sizes, attn_implementation="eager"))
    stir(module)
    for parameter in module.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=WIDTH**-0.5)  # what BERT draws is for its own width
    hidden, mask = bert_layer.layer_inputs(batch, tokens)
    return module, (hidden[..., :WIDTH].contiguous(), mask)


def _gpt2(batch: int, tokens: int) -> Made:
    with patch.object(gpt2_block, "GPT2Config", partial(GPT2Config, n_embd=WIDTH, n_head=HEADS)):
        return gpt2_block.make(batch, tokens)


def _llama(batch: int, tokens: int) -> Made:
    small = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=48,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        attention_dropout=0.1,
        attn_implementation=llama_block.EAGER,
    )
    with patch.object(llama_block, "config", lambda: small):
        return llama_block.make(batch, tokens)


_SAMPLES = {"bert_layer": _bert, "gpt2_block": _gpt2, "llama_block": _llama}

for _like, _make in _SAMPLES.items():
    _name = f"small_{_like.partition('_')[0]}"
    _module = ModuleType(f"{samples.__name__}.{_name}")
    _module.make = _make
    sys.modules[_module.__name__] = _module
    _about = {"name": _name, "title": _name, "default_tokens": 6}
    samples.SAMPLES[_name] = replace(samples.SAMPLES[_like], **_about)
