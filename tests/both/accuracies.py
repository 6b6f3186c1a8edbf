"""Running the accuracy report on a session in this process."""

from answers import quiet
from quick import QUICK
from relascope.engine.jobs import accuracy
from relascope.passes.catalogue import default_pipeline


def asking(session):
    """What `engine.jobs.accuracy` asks with."""
    return lambda method, *arguments: getattr(session, method)(*arguments, progress=quiet)


def table(session, source, strategies=("min_cut",), dtypes=accuracy.DTYPES, stages=None):
    """The rows of a model by (stage, dtype); with `stages`, only of those stages' runs."""
    plan = accuracy.plan(
        session.ir,
        source,
        default_pipeline(session.ir, False),
        default_pipeline(session.ir, True),
        strategies,
        None,
        dtypes,
    )
    rows = [
        row
        for stage in plan
        if stages is None or stage.name in stages
        for row in accuracy.run(asking(session), stage, QUICK)
    ]
    return {(r.stage, r.dtype): r for r in rows}


def check_all_passed(rows, dtypes):
    """Every row agrees with PyTorch, and says of what; no node is blamed."""
    for key, row in rows.items():
        assert row.failure is None, (key, row.failure)
        assert row.passed, (key, row)
        assert row.first_bad_node is None
        assert 0 < row.max_rel <= row.limit
    names = {"forward", "training forward", "gradient", "cut", "split"}
    assert set(rows) == {(n, d) for n in names for d in dtypes}
