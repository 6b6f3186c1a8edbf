"""Narrowing in Relax."""

import pytest

pytest.register_assert_rewrite("reducing")

from reducing import *  # noqa: E402, F403
from reducing import Case  # noqa: E402

from engine.relax.session import RelaxSession  # noqa: E402


@pytest.fixture
def case():
    return Case("relax", {"slow": "decompose_inference"}, "")


@pytest.fixture(scope="module")
def session():
    return RelaxSession()
