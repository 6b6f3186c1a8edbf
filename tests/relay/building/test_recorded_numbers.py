"""The numbers of recordings of Relay's compiles."""

import pytest

pytestmark = pytest.mark.exhaustive  # Relax's have the subject, too

from numbers_of_recordings import *  # noqa: F403
from relascope.engine.jobs import bisect
from relascope.engine.jobs.accuracy import OURS
from relascope.viz.rows.recorded_numbers import RecordedNumbers, parts


def test_a_build_is_right_until_it_has_kernels(compiled, ask, tmp_path):
    """What says how it is built, and for which device, is left out of its modules."""
    part, held = parts(compiled)[1], RecordedNumbers(compiled, tmp_path)
    *rows, last = held.errors(ask, part, "llvm", OURS)
    assert {r["error"]["verdict"] for r in rows} == {"right"} and len(rows) >= 6
    assert last["pass"] == "LowerTensorExpr"
    assert " as TVM's JSON: " in last["failure"]["message"]
    (found,) = held.search(ask, "relay", (part,), "llvm", OURS)
    assert "Nothing to find" in bisect.verdict("relay", found.result)
    assert f"Pass {last['number']}, LowerTensorExpr, is left out: " in found.left_out
