"""`torch.nn`'s LSTM, GRU and RNN, step by step, in few operators.

The input's product is one for all steps, and includes the biases that can be added there; gates are
slices of one product, so that their gradients are joined and not summed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

State = list[Tensor]


def recurrent(
    base: str,
    given: Tensor,
    first: Tensor | Sequence[Tensor],
    parameters: Sequence[Tensor],
    biased: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """The results of ATen's `lstm.input`, `gru.input`, `rnn_tanh.input` or `rnn_relu.input`, from
    its name and its arguments."""
    states = [first] if isinstance(first, Tensor) else list(first)
    ways = 2 if bidirectional else 1
    each = len(parameters) // (layers * ways)
    ends: list[State] = []
    x = given.transpose(0, 1) if batch_first else given
    for layer in range(layers):
        made = []
        for way in range(ways):
            place = len(ends)
            of = parameters[place * each : (place + 1) * each]
            steps, end = _layer(base, x, [s[place] for s in states], of, biased, way == 1)
            made.append(steps)
            ends.append(end)
        x = torch.cat(made, -1) if bidirectional else made[0]
        if train and dropout and layer < layers - 1:
            x = torch.dropout(x, dropout, True)
    x = x.transpose(0, 1) if batch_first else x
    return x, *(torch.stack(kind) for kind in zip(*ends, strict=True))


def _layer(
    base: str, x: Tensor, state: State, of: Sequence[Tensor], biased: bool, backwards: bool
) -> tuple[Tensor, State]:
    """One direction of a layer: its results (steps, batch, features), and its last state."""
    by_input, by_state, *more = of
    bias, inner = more[:2] if biased else (None, None)
    projected = more[-1] if len(more) % 2 else None
    if bias is not None and inner is not None and base != "gru":  # whose reset gate scales one bias
        bias, inner = bias + inner, None
    steps: list[Tensor] = []
    terms = linear(x.flatten(0, 1), by_input, bias).split(x.shape[1])
    for term in reversed(terms) if backwards else terms:
        state = _cell(base, term, linear(state[0], by_state, inner), state)
        if projected is not None:
            state[0] = linear(state[0], projected)
        steps.append(state[0])
    return torch.cat(steps[::-1] if backwards else steps).unflatten(0, x.shape[:2]), state


def _cell(base: str, term: Tensor, product: Tensor, state: State) -> State:
    """The state after a step; `term` is the input's share of the gates, `product` the state's."""
    if base.startswith("rnn"):
        return [(term + product).tanh() if base == "rnn_tanh" else (term + product).relu()]
    if base == "lstm":
        entered, kept, cell, out = (term + product).chunk(4, -1)
        memory = kept.sigmoid() * state[1] + entered.sigmoid() * cell.tanh()
        return [out.sigmoid() * memory.tanh(), memory]
    (reset, kept, new), others = term.chunk(3, -1), product.chunk(3, -1)
    new = (new + (reset + others[0]).sigmoid() * others[2]).tanh()
    return [(state[0] - new) * (kept + others[1]).sigmoid() + new]
