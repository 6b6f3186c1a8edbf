"""Regressions planted in a compile are named; see tests/both/compiles/planting.py."""

import pytest
import tvm

from planting import FEW, Planting, cases, named
from relascope.engine.relay.session import RelaySession


def end():
    """Leave the contexts that a pass has entered."""
    while (context := tvm.transform.PassContext.current()).config:
        context.__exit__(None, None, None)


@pytest.mark.parametrize("title", cases(FEW[:1]))
def test_a_planted_regression_is_named(title, tmp_path, monkeypatch):
    named(Planting(RelaySession, tmp_path, monkeypatch, end), "relay", title)
