"""Findings in Relay, and the passes that remove them."""

from dataclasses import replace

import torch

from linting import *  # noqa: F403
from linting import ATTENTION, removed, traced, without


def test_layout_changes_in_a_row_become_one(session, tmp_path):
    convolution = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    source = traced(tmp_path, convolution, (1, 3, 8, 8))
    twice = "bind|convert_layout(data=NHWC)|convert_layout(data=NCHW)"
    removed(session, source, twice, "layouts", "simplify_expr")


def test_a_weight_that_is_turned_for_a_product_in_training_becomes_dense(session):
    source, pipeline = replace(ATTENTION, training=True), without("linear_to_dense")
    found = removed(session, source, pipeline, "transposes", "linear_to_dense")
    assert {f.operators[1] for f in found} == {"nn.batch_matmul"}
