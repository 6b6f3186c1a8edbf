"""What a timing says: a headline that its data allow, targets in few words, and past runs."""

from dataclasses import replace

import pytest

from page import open_tab, press, says, settle, words
from relascope.engine.measure.timing import row, unsteady
from relascope.engine.protocol.results import IMPORTED
from relascope.engine.protocol.targets import Target
from relascope.viz.rows.timings import short, verdicts


def said(ours, eager):
    """What is said of rounds of runs in milliseconds beside those of eager."""
    ours, eager = (tuple((ms / 1e3,) for ms in runs) for runs in (ours, eager))
    theirs = row("pytorch eager", "forward", eager, None, None, None)
    rows = [theirs, row("relay, cpu", "forward", ours, eager, 1e-6, None)]
    none, (text, sure) = verdicts(rows)
    assert none is None
    assert bool(unsteady(rows)) == text.endswith("; the machine is busy")
    return text.removesuffix("; the machine is busy"), sure


STEADY = [10.0, 10.1, 9.9, 10.0, 10.2]


@pytest.mark.parametrize(
    ("ours", "eager", "text", "sure"),
    [
        ([5.0, 5.1, 4.9, 5.0, 5.1], STEADY, "2.00× faster than eager", True),
        ([20.0, 20.1, 19.9, 20.0, 20.1], STEADY, "2.00× slower than eager", True),
        ([10.1, 10.0, 10.0, 10.1, 10.2], STEADY, "as fast as eager", True),
        ([9.2, 10.9, 10.4, 9.5, 10.5], STEADY, "about equal to eager", True),
        # The medians say three times as fast, the best runs that there is no difference.
        ([17, 9, 26, 17, 9.5], [56, 9.3, 92, 57, 50], "0.28 to 0.97 of eager's time", False),
        ([3, 8, 4, 3, 5], [30, 30.1, 29.9, 30, 30], "6× to 10× faster than eager", False),
        ([90, 40, 60, 95, 50], [30, 30.1, 29.9, 30, 30], "1.3× to 3× slower than eager", False),
        ([0.3, 0.8, 0.4, 0.3, 0.5], [60] * 5, "120× to 200× faster than eager", False),
    ],
)
def test_a_headline_says_no_more_than_its_data(ours, eager, text, sure):
    assert said(ours, eager) == (text, sure)


def test_a_module_of_tvm_is_told_beside_its_program_and_targets_by_whose_kernels_they_take():
    ours, theirs = (tuple((ms / 1e3,) for ms in runs) for runs in (STEADY, [20.0] * 5))
    imported = row(IMPORTED, "forward", theirs, None, None, None)
    rows = [imported, row("relay, cpu", "forward", ours, theirs, 0.0, None)]
    assert verdicts(rows)[1][0].endswith("faster than the imported program")
    best = Target("llvm -mcpu=x -libs=blas", "the CPU", True, kernels="PyTorch's BLAS")
    plain = replace(best, name="llvm -mcpu=x", kernels="TVM's own kernels")
    assert short(f"relay, {best.name}", [plain, best]) == "relay, PyTorch's BLAS"
    assert short("relay, llvm -mcpu=x", [plain, best]) == "relay, TVM's own kernels"
    assert short("pytorch eager", [plain, best]) == "pytorch eager"


def test_a_timing_of_another_model_or_setting_is_said_to_be_one(page):
    open_tab(page, "Compile & time")
    press(page, "run")
    assert "These are not the times" not in words(page)
    says(page, "1.32× slower than eager")
    settle(page.number_input(key="keep_repeats").set_value(7).run())
    assert "Since they were measured, the repeats changed. Press Run" in words(page)
    settle(page.number_input(key="keep_repeats").set_value(30).run())
    assert "These are not the times" not in words(page)
    settle(page.sidebar.selectbox(key="keep_model").set_value("mlp").run())
    said = words(page).replace("\\", "")
    assert "They are of bert_layer, inference. Press Run to time mlp, inference." in said
