"""Narrowing in Relay."""

import pytest

pytest.register_assert_rewrite("reducing")

from reducing import *  # noqa: E402, F403
from reducing import Case  # noqa: E402

from engine.relay.session import RelaySession  # noqa: E402


@pytest.fixture
def case():
    return Case("relay", {"slow": "linear_to_dense"}, "")


@pytest.fixture(scope="module")
def session():
    return RelaySession()
