"""Bisection and narrowing in Relax."""

import re

import pytest
from torch import nn

from bisecting import *  # noqa: F403
from bisecting import Case, small
from reducing import *  # noqa: F403
from reducing import run_alone, written
from relascope.engine.client import EngineClient
from relascope.engine.jobs import bisect as bisection
from relascope.engine.jobs import reduce
from relascope.passes.pipeline import Pipeline

# Relay's take a third of the time.
pytest.mark.exhaustive(test_a_slow_pass_comes_down_to_one_layer)  # noqa: F405
pytest.mark.exhaustive(test_a_pass_that_makes_it_slow_is_found)  # noqa: F405


@pytest.fixture
def case():
    return Case(
        "relax",
        {
            "gelu_tanh": "cse",
            "in_float16": "bind",
            "weight_transposed": "fold",
            "residual_dropped": "dce",
            "softmax_axis": "fold",
            "slow": "decompose_inference",
        },
        "decompose_gelu|decompose_layer_norm|eps_outside|canonicalize|root_grad_out|gradient|drop_zeros"
        "|dce",
    )


class Gelu(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x).sin()


@pytest.mark.exhaustive  # each question starts an engine
def test_a_pass_that_ends_the_process_is_found_and_narrowed(case, tmp_path):
    pipeline = Pipeline.parse("kills|bind")
    with EngineClient("relax") as client:
        question = bisection.Question(small(tmp_path, Gelu), pipeline, "llvm")
        found = bisection.bisect(client.call, "relax", question)
        assert (found.kind, found.culprits.suspects) == ("crash", (0,))
        made = reduce.narrow(client.call, "relax", found)
    assert (made.operators, made.where.building) == (("nn.gelu",), False)
    assert "SIGSEGV" in made.shown.error.message
    status, said = run_alone(written(made.report, tmp_path / "report"))
    assert status == 1, said
    assert "kills ends the process on nn.gelu" in said
    assert "The process ended by SIGSEGV in the passes." in said
    text = (tmp_path / "report" / "README.md").read_text()
    assert "SIGSEGV" in text
    assert not re.search(r"(/\w+){2}/", text)
