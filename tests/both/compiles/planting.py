"""A gate names the regressions that are planted in a compile, in the engine whose TVM is here."""

import sys

import pytest
import tvm

from answers import asking
from planted import PLANTED, write
from quick import ENGINE, QUICK
from relascope.engine.jobs import baseline
from relascope.engine.protocol.source import ModelSource
from relascope.passes import catalogue
from relascope.passes.catalogue import default_pipeline, read_pipeline, user
from relascope.viz.rows.gate.baseline import compare

BY_TITLE = {p.title: p for p in PLANTED}
FEW = ("a fusion lost", "a cast added")[: 1 if ENGINE == "relay" else 2]
"""Those that are run by default: the others take long for what they add."""

SOUND = {}
"""What was taken of the sound model, by whether it trains: of which twice is no difference."""


class Planting:
    """One engine, asked anew each time, so that nothing of an earlier compile is remembered."""

    def __init__(self, session, folder, monkeypatch):
        self.session, self.folder = session, folder
        monkeypatch.setenv(user.VARIABLE, "")
        monkeypatch.setattr(catalogue, "CATALOGUE", dict(catalogue.CATALOGUE))

    def taken(self, planted, training):
        for module in [m for m in sys.modules if m.endswith("own.py")]:
            del sys.modules[module]
        model, own = write(self.folder, ENGINE, planted)
        user.name_files([str(own)])
        source = ModelSource(f"python:{model}:make", training=training)
        pipeline = read_pipeline(ENGINE, f"{default_pipeline(ENGINE, training)}|own")
        try:
            return baseline.take(asking(self.session()), ENGINE, source, pipeline, QUICK, rounds=2)
        finally:
            while (context := tvm.transform.PassContext.current()).config:
                context.__exit__(None, None, None)  # which a pass has entered


@pytest.mark.parametrize(
    "title", [t if t in FEW else pytest.param(t, marks=pytest.mark.exhaustive) for t in BY_TITLE]
)
def test_a_planted_regression_is_named(title, session, tmp_path, monkeypatch):
    planted, planting = BY_TITLE[title], Planting(type(session), tmp_path, monkeypatch)
    if planted.training not in SOUND:
        then, again = (planting.taken(None, planted.training) for _ in range(2))
        SOUND[planted.training] = then
        differences = compare(then, again).differences
        assert [d for d in differences if d.kind not in ("compile", "speed")] == []
    now = planting.taken(planted, planted.training)
    result = compare(SOUND[planted.training], now)
    found = [d for d in result.failing() if d.kind == planted.kind]
    assert any(planted.says(ENGINE) in d.sentence for d in found), result
