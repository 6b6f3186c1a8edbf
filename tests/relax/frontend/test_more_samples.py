"""Samples beyond a BertLayer: their gradients and running statistics in Relax."""

import pytest

import small_models  # noqa: F401
from gradients import compare, quiet
from joint_programs import gradients_and_statistics_agree
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import load_model
from relascope.engine.relax.frontend.importer import import_model
from training import joint, step


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("small_gpt2", "float32"),
        ("small_llama", "float64"),
        pytest.param("gpt2_block", "float32", marks=pytest.mark.exhaustive),
        pytest.param("llama_block", "float64", marks=pytest.mark.exhaustive),
    ],
)
def test_every_gradient_of_a_block_agrees_with_pytorch(name, dtype):
    source = ModelSource(name, batch=2, tokens=3, training=True, dtype=dtype)
    model = load_model(source, quiet)
    outputs, gradients = step(model, joint(import_model(model, quiet)), "min_cut")
    compare(model, outputs, gradients)


@pytest.mark.parametrize(
    ("name", "dtype"),
    # In float32, which side of relu6's bends a number falls on may depend on rounding.
    [
        ("resnet", "float32"),
        pytest.param("resnet", "float64", marks=pytest.mark.exhaustive),
        ("mobilenet_v2", "float64"),
    ],
)
def test_gradients_and_running_statistics_agree(name, dtype):
    gradients_and_statistics_agree(name, dtype)
