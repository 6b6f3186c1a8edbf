"""TVM in training code, through Relay."""

import copy

import pytest
import torch
from torch import nn

from dispatching import *  # noqa: F403
from limits import GRADIENT

_SLOW = """
    a_bert_classifier_trains_as_with_pytorch_under_the_same_seed
    a_copied_module_runs_its_own_parameters_and_hooks_run_once
    another_tvm_that_is_here_already_is_refused
    calls_like_any_of_the_samples_are_served_by_name_and_with_defaults_too
    frozen_parameters_get_no_gradient
    gradients_in_eval_mode_are_pytorchs
    inputs_and_outputs_nest_as_they_do_in_the_module
    nested_dispatch_and_repeated_calls
    other_constants_and_another_nesting_make_another_program
    samples_from_the_seed_of_nobody_are_verified
    train_eval_and_no_grad_each_do_what_the_module_does
    values_of_other_kinds_are_verified
    what_a_mask_chooses_is_pytorchs_however_many_it_are
    what_changes_between_calls_or_before_a_backward_is_seen
    what_differs_from_the_module_is_said_before_it_is_used
"""
for _name in _SLOW.split():  # Relax's are quicker
    pytest.mark.exhaustive(globals()[f"test_{_name}"])


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.register_buffer("count", torch.ones(()))

    def forward(self, x):
        y = x.clone()
        y[:, 1:] = y[:, 1:] * 2
        with torch.no_grad():
            self.count.add_(1)
        return self.norm(y * self.count), y.detach()


def test_a_backward_reads_a_changed_buffer_as_it_was():
    module, x = Counted(), torch.randn(3, 4, 8, requires_grad=True)
    plain = copy.deepcopy(module)
    add_tvm_dispatch(module, x.detach(), verify=False)  # noqa: F405
    weight = torch.randn(3, 4, 8)
    ours, theirs = (torch.autograd.grad(m(x)[0], x, weight)[0] for m in (module, plain))
    assert torch.allclose(ours, theirs, atol=GRADIENT)
