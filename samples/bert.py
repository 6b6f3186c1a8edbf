"""BERT-base whole: embeddings, 12 layers, pooler."""

import torch
from torch import nn
from transformers.models.bert.modeling_bert import BertModel

from relascope.samples.bert_layer import config
from relascope.samples.weights import stir


def make(batch: int, tokens: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model, input_ids and attention_mask, both int64 (batch, tokens). It returns the last
    hidden states (batch, tokens, 768) and the pooled state (batch, 768)."""
    settings = config()
    settings.return_dict = False
    settings.use_cache = False
    module = BertModel(settings)
    stir(module)
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    mask[:, tokens - tokens // 4 :] = 0
    return module, (torch.randint(settings.vocab_size, (batch, tokens)), mask)
