"""The real engines, where the sample `bert_layer` is 32 wide for 768: one graph, far less work.

Each function makes a session; what they import is imported in the engine's process alone."""

from importlib import import_module
from typing import Any

from relascope.engine.registry import REGISTRY

WIDTH = 32
PARAMETERS = 8_544


def relay() -> Any:
    return _session("relay")


def relax() -> Any:
    return _session("relax")


def _session(ir: str) -> Any:
    module, name = REGISTRY[ir].session.split(":")
    session = getattr(import_module(module), name)  # first, since it loads the TVM
    from relascope.samples import bert_layer

    wide_config, wide_inputs = bert_layer.config, bert_layer.layer_inputs

    def config() -> Any:
        found = wide_config()
        found.hidden_size, found.num_attention_heads, found.intermediate_size = WIDTH, 2, 2 * WIDTH
        return found

    def layer_inputs(batch: int, tokens: int) -> Any:
        hidden, mask = wide_inputs(batch, tokens)
        return hidden[..., :WIDTH].contiguous(), mask

    bert_layer.config, bert_layer.layer_inputs = config, layer_inputs
    return session()
