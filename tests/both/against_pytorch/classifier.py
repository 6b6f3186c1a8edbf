"""A small BERT classifier, trained through TVM or with PyTorch alone."""

import time

import torch
from transformers import BertConfig, BertForSequenceClassification

from relascope.engine.dispatch import add_tvm_dispatch

BATCH, TOKENS = 8, 16
CONFIG = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 32,
    "num_labels": 2,
    "attn_implementation": "eager",
}


def losses(
    engine: str | None, steps: int, seconds: list[float] | None = None, layers: int = 2
) -> list[float]:
    """The loss of each step of AdamW in an engine (None: PyTorch alone), dropout on, on made data
    that can be learned; `seconds` is given what each step took."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**CONFIG, num_hidden_layers=layers)).train()
    data = torch.Generator().manual_seed(1)
    if engine is not None:
        ids = torch.ones(BATCH, TOKENS, dtype=torch.int64)
        add_tvm_dispatch(model, (ids, torch.ones_like(ids)), engine=engine)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    torch.manual_seed(2)
    found = []
    for _ in range(steps):
        ids = torch.randint(2, CONFIG["vocab_size"], (BATCH, TOKENS), generator=data)
        labels = torch.arange(BATCH) % 2
        ids[labels == 1, 3] = 1
        mask = torch.ones_like(ids)
        mask[::3, -4:] = 0
        began = time.perf_counter()
        logits = model(ids, mask).logits
        loss = torch.nn.functional.cross_entropy(logits, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if seconds is not None:
            seconds.append(time.perf_counter() - began)
        found.append(float(loss.detach()))
    if engine is not None and model.forward.calls != {"tvm": steps, "own": 0}:
        raise RuntimeError(f"not every step went through TVM: {model.forward.calls}")
    return found
