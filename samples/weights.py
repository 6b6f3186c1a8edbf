"""Random weights in which no error can hide: no bias is zero and no layer norm is the identity."""

import torch


def stir(module: torch.nn.Module) -> None:
    """Draw every vector parameter anew, in place, from torch's global generator. Biases become
    normal with deviation 0.1; the scales of normalisations, which libraries start at exactly one,
    become normal around one. Matrices and filters stay as their library drew them."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() == 1:
                center = 1.0 if name.endswith("weight") else 0.0
                parameter.normal_(center, 0.1)


def settle(module: torch.nn.Module, inputs: torch.Tensor) -> None:
    """Give every batch norm, in place, the running statistics that these inputs have there.
    Libraries start them at zero and one, with which deep networks of random weights lose sight of
    their input."""
    norms = [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    momenta = [m.momentum for m in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the average of all batches alike
    module.train()
    with torch.no_grad():
        module(inputs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
