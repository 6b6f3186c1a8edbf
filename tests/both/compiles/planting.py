"""What the tests of a gate share: regressions planted in a compile, in this process."""

import sys

import pytest

from planted import PLANTED, write
from quick import QUICK
from relascope.engine.jobs import baseline
from relascope.engine.protocol.source import ModelSource
from relascope.passes import catalogue
from relascope.passes.catalogue import default_pipeline, read_pipeline, user
from relascope.viz.rows.gate.baseline import compare

BY_TITLE = {p.title: p for p in PLANTED}
FEW = ("a fusion lost", "a cast added")


def cases(few=FEW):
    """Every regression; those that are not among a few take long for what they add."""
    mark = pytest.mark.exhaustive
    return [t if t in few else pytest.param(t, marks=mark) for t in BY_TITLE]


class Planting:
    """One engine, asked anew each time, so that nothing of an earlier compile is remembered.

    Args:
        session: the engine's class.
        end: undoes what a pass did to the process.
    """

    def __init__(self, session, folder, monkeypatch, end):
        self.session, self.folder, self.end = session, folder, end
        monkeypatch.setenv(user.VARIABLE, "")
        monkeypatch.setattr(catalogue, "CATALOGUE", dict(catalogue.CATALOGUE))

    def taken(self, ir, planted, training):
        for module in [m for m in sys.modules if m.endswith("own.py")]:
            del sys.modules[module]
        model, own = write(self.folder, ir, planted)
        user.name_files([str(own)])
        session = self.session()

        def ask(method, *arguments):
            return getattr(session, method)(*arguments, progress=lambda *_: None)

        source = ModelSource(f"python:{model}:make", training=training)
        pipeline = read_pipeline(ir, f"{default_pipeline(ir, training)}|own")
        try:
            return baseline.take(ask, ir, source, pipeline, QUICK, rounds=2)
        finally:
            self.end()


def named(planting, ir, title):
    """Whether a regression is named by its kind and its words, and nothing where there is none."""
    planted = BY_TITLE[title]
    then = planting.taken(ir, None, planted.training)
    now = planting.taken(ir, planted, planted.training)
    found = [d for d in compare(then, now).failing() if d.kind == planted.kind]
    assert any(planted.says(ir) in d.sentence for d in found), compare(then, now)
    again = compare(then, planting.taken(ir, None, planted.training))
    assert [d for d in again.differences if d.kind not in ("compile", "speed")] == []
