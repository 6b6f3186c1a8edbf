"""Random weights in which no error can hide: no bias is zero and no layer norm is the identity."""

from __future__ import annotations

import torch


def stir(module: torch.nn.Module) -> None:
    """Draw every vector parameter anew, in place, from torch's global generator.

    Biases become normal with deviation 0.1; the scales of normalisations, which libraries start at
    exactly one, become normal around one. Matrices and filters stay as their library drew them.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() == 1:
                center = 1.0 if name.endswith("weight") else 0.0
                parameter.normal_(center, 0.1)
