"""What the benches that hold engines against PyTorch share: verdicts, in words, and children."""

import os
import time

import pytest
import torch

import judged
from relascope.core.errors import EngineError

ONE = torch.tensor([1.0, 2.0, -4.0])
EXACT = (ONE.double(),)


def differences(ours, theirs, judge=lambda: EXACT, **more):
    return judged.differences((ours,), (theirs,), judge, 1e-5, **more)


def test_how_tensors_differ_is_said():
    assert differences(ONE, ONE.clone()) == ""
    assert judged.differences((ONE, ONE), (ONE,), lambda: EXACT, 1e-5) == "2 tensors for 1"
    assert differences(ONE[:2], ONE) == "0: float32[2] for float32[3]"
    off = ONE + torch.tensor([0.0, 0.5, 0.0])
    assert differences(off, ONE, names=["y"]) == "y: 1 of 3 off, [1] 2.5 for 2"
    said = "0: 3 of 3 off, [0] 1 for 2, [1] 2 for 3, [2] -4 for -3"
    assert differences(off.long(), ONE.long() + 1) == said


def test_what_moves_results_is_room():
    theirs = ONE + 1e-3  # which is off itself
    assert differences(ONE, theirs) == ""

    def none():
        raise NotImplementedError

    assert differences(ONE, theirs, none) != ""
    assert differences(ONE, theirs, none, again=[lambda: (ONE,)]) == ""
    zero = torch.tensor([1e-9, -1e-9])  # a gradient of zero, with another rounding

    def moved():
        yield (-zero,)

    assert differences(2 * zero, zero, lambda: 1 / 0) != ""
    assert differences(2 * zero, zero, lambda: 1 / 0, moved=moved) == ""
    assert differences(zero + 1e-8, zero, lambda: 1 / 0, moved=moved) != ""


def test_a_refusal_is_a_sentence_of_ours_and_all_else_a_crash():
    refusal = judged.failed(EngineError("operator", "Cannot.", "aten::x"))
    assert (refusal["verdict"], refusal["where"]) == ("refused", "aten::x")
    ours = EngineError("operator", "Cannot.", "", "Report this: it is a bug in relascope.")
    assert judged.failed(ours)["verdict"] == "crash"
    assert judged.failed(EngineError("engine", "It ended."))["verdict"] == "crash"
    with pytest.raises(ValueError, match="last") as caught:
        raise ValueError("first\n  last\n")
    row = judged.failed(caught.value)
    assert (row["verdict"], row["message"]) == ("crash", "ValueError: last")
    assert "test_judged.py:" in row["deepest"]


def test_a_child_that_dies_or_takes_too_long_says_so():
    def dies(pipe):
        pipe.send({"op": "x"})
        os._exit(3)

    def hangs(pipe):
        time.sleep(600)

    assert list(judged.child(dies, 60)) == [{"op": "x"}, {"died": "the process ended with 3"}]
    assert list(judged.child(hangs, 0.2)) == [{"died": "took longer than 0 s"}]


def test_rows_are_read_as_far_as_the_file_is_whole(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert judged.read(path) == []
    path.write_text('{"op": "a", "verdict": "right"}\n{"op": "b"}\n{"op": "c", "ver')
    assert [r["op"] for r in judged.read(path)] == ["a", "b"]
    assert [r["op"] for r in judged.tried(path)] == ["a"]
    assert judged.short("a | b\n c") == "a \\| b c"
    assert judged.short("x" * 200) == "x" * 89 + "…"
