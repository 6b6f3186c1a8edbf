"""What differs from a baseline, in sentences: each kind, where it is held, and where it is not."""

import copy
import json

import pytest

from relascope.core.errors import EngineError
from relascope.viz.rows.gate import baseline
from relascope.viz.rows.gate.baseline import KINDS, compare, crashed, read, write

TIMES = {"best_ms": 10.0, "q1_ms": 11.0, "median_ms": 12.0, "q3_ms": 20.0, "runs": 7}


def layer(number):
    return {
        f"encoder.layer.{number}.dense": {"nn.dense": 1, "add": 1},
        f"encoder.layer.{number}.norm": {"multiply": 1},
    }


def kernels(number):
    at = f"encoder.layer.{number}"
    return [[f"nn.dense @{at}.dense", f"add @{at}.dense"], [f"multiply @{at}.norm"]]


FLOAT32 = {"limit": 1e-5, "dtype": "float32"}


def document(layers=3):
    return {
        "baseline": 1,
        "model": "net",
        "engine": "relay",
        "pipeline": "cse|bind|fold|cse",
        "options": {},
        "made": {"tvm": "1", "target": "llvm", "machine": "A", "threads": 1},
        "operators": {k: v for i in range(layers) for k, v in layer(i).items()},
        "kernels": [k for i in range(layers) for k in kernels(i)],
        "bytes": {"parameters": 0, "constants": 4096},
        "flops": {"total": 2000, "by operator": {"nn.dense": 1500, "add": 500}},
        "memory": {"built": 1000},
        "error": {"verdict": "right", "worst": "output 0", "max_rel": 1e-7, **FLOAT32},
        "compile": {
            "passes": {f"{i + 1} {n}": dict(TIMES) for i, n in enumerate(("cse", "bind", "cse"))},
            "build": {**TIMES, "best_ms": 100.0, "anew": True},
            "yardstick": {**TIMES, "best_ms": 4.0},
        },
        "captures": {
            n: {"count": 1, "bytes": 2048, "of": {"act": {"erf": 1}}} for n in ("min_cut", "all")
        },
        "speed": {"forward": {"ratio": 1.0, "q1": 0.95, "q3": 1.05}},
    }


def said(now, then=None):
    return [(d.kind, d.verdict, d.text) for d in compare(then or document(), now).differences]


def test_nothing_differs_from_itself_nor_where_noise_or_a_slower_machine_is():
    now = document()
    now["compile"]["passes"]["1 cse"]["best_ms"] = 14.0
    now["compile"]["build"]["best_ms"] = 140.0
    now["speed"]["forward"] = {"ratio": 1.3, "q1": 1.0, "q3": 1.6}  # its spread holds the other
    now["memory"]["built"] = 1009
    now["error"]["max_rel"] = 9e-7
    assert said(now) == []
    now = document()
    for times in (*now["compile"]["passes"].values(), now["compile"]["yardstick"]):
        times["best_ms"] *= 4
    now["compile"]["build"]["best_ms"] *= 4
    assert said(now) == []


def test_a_build_that_was_not_made_anew_is_no_measure():
    now, then = document(), document()
    now["compile"]["build"]["best_ms"] = 1000.0
    assert [verdict for _, verdict, _ in said(now)] == ["worse"]
    del then["compile"]["build"]["anew"]  # of an earlier version
    assert said(now, then) == []


def test_a_fusion_lost_names_operator_module_and_the_others_once_for_all_layers():
    now = document()
    at = "encoder.layer.0.dense"
    now["kernels"][0:1] = [[f"nn.dense @{at}"], [f"add @{at}"]]
    lost = f"7 kernels instead of 6; `add` of {at} is no longer fused with `nn.dense`"
    assert said(now) == [("fusion", "worse", lost)]
    won = f"6 kernels instead of 7; `add` of {at} is now fused with `nn.dense`"
    assert said(document(), now) == [("fusion", "better", won)]
    now = document(12)
    now["kernels"] = [[label] for k in now["kernels"] for label in k]
    (found,) = said(now, document(12))
    assert "`add` of encoder.layer.0.dense and 11 modules like it is no longer fused" in found[2]


def test_a_dropped_layer_is_named_whole_and_a_cast_by_its_module():
    (operators, fusion) = said(document(2))
    words = "6 instead of 9; the module encoder.layer.2 is gone, with all of its 3 operators "
    assert operators == ("operators", "other", f"{words}(nn.dense, add, multiply)")
    assert fusion[2] == "4 kernels instead of 6"
    now = document()
    for i in range(2):
        now["operators"][f"encoder.layer.{i}.norm"]["cast"] = 2
    words = "13 instead of 9; 2 `cast` more in encoder.layer.0.norm and one module like it"
    assert said(now) == [("operators", "other", words)]


def test_every_other_kind_has_its_sentence():
    now = document()
    now["pipeline"] = "cse|bind|cse|dce"
    now["flops"] = {"total": 4000, "by operator": {"nn.dense": 3500, "add": 500}}
    now["memory"] = {"built": 1500}
    now["error"] = {**now["error"], "verdict": "wrong", "max_rel": 0.03}
    now["compile"]["passes"] = {"1 cse": dict(TIMES), "2 bind": {**TIMES, "best_ms": 40.0}}
    now["captures"]["min_cut"] = {"count": 2, "bytes": 4096, "of": {"act": {"erf": 1, "tanh": 1}}}
    now["speed"]["forward"] = {"ratio": 1.4, "q1": 1.35, "q3": 1.46}
    told = {d.kind: d.sentence for d in compare(document(), now).differences}
    assert told == {
        "wrong": "wrong: output 0 is off by 3.0e-02 of its scale (limit 1e-05), and over the "
        "limit in float64, too; it was 1.0e-07 of output 0",
        "pipeline": "pipeline: `fold` is no longer in it; `dce` is new, from step 4 on",
        "captures": "captures: min_cut: 2 captures, 4.0 KiB instead of 1, 2.0 KiB; now saved: "
        "`tanh` of act",
        "flops": "flops: 4 k instead of 2 k (2.0 times): `nn.dense` 3.5 k instead of 1.5 k",
        "memory": "memory: what is built takes 1.5 KiB instead of 1000 B (+50 %)",
        "compile": "compile: the pass `bind` takes 40 ms instead of 10 ms (best of 7 and 7 runs; "
        "medians 12 ms and 12 ms)",
        "speed": "speed: forward takes 1.40 (1.35 to 1.46) of eager's time instead of 1.00 "
        "(0.95 to 1.05)",
    }
    better = {d.kind: d.verdict for d in compare(now, document()).differences}
    assert better["flops"] == better["memory"] == better["compile"] == better["speed"] == "better"
    assert [d.kind for d in compare(now, document()).failing()] == ["pipeline"]


def test_a_pipeline_tells_what_is_switched_and_what_is_another():
    def told(then, now):
        was, new = ({**document(), "pipeline": text} for text in (then, now))
        return said(new, was)[0][2]

    assert told("cse|fold", "cse|-fold") == "`fold` is switched off"
    assert told("-cse|-fold", "cse|fold") == "`cse`, `fold` are switched on"
    assert told("cse|fold", "cse|dce") == "from step 2 on, it has `dce` instead of `fold`"


def test_an_error_that_grew_or_is_rounding_is_told_and_no_small_one():
    now = document()
    for size in (2e-6, float("nan")):
        now["error"]["max_rel"] = size
        assert [(k, v) for k, v, _ in said(now)] == [("error", "worse")]
    now["error"] |= {"verdict": "rounding", "max_rel": 2e-5}
    assert "rounding, because float64" in said(now)[0][2]
    now["error"] |= {"verdict": "wrong", "max_rel": 1e-3}
    found = compare(now, copy.deepcopy(now))
    assert not found.differences and "as they were" in found.notes[0]


def test_what_another_machine_target_or_tvm_made_is_said_and_held_as_far_as_it_can_be():
    now = document()
    now["compile"]["passes"]["1 cse"]["best_ms"] = 99.0
    now["memory"]["built"] = 9999
    now["made"] = {**now["made"], "machine": "B", "tvm": "2"}
    found = compare(document(), now)
    assert [d.kind for d in found.differences] == ["memory"]
    assert found.skipped == ("compile", "speed")
    assert "TVM 1, but this check with TVM 2: a difference may be TVM's" in found.notes[0]
    assert "another machine (A, 1 threads; this is B, 1 threads): times" in found.notes[1]
    now["made"] = {**now["made"], "target": "cuda"}
    found = compare(document(), now)
    assert not found.differences and set(found.skipped) == {"error", "memory", "compile", "speed"}
    assert "errors, memory and times are not compared" in found.notes[1]


def test_a_crash_is_a_difference_in_its_own_words_and_every_kind_is_known():
    error = EngineError("pass", "Step 3, fold, failed: no such axis.\nmore", "FoldConstant")
    text = "it can no longer be compiled and run: Step 3, fold, failed: no such axis"
    assert crashed(error).sentence == f"crash: {text} (FoldConstant)"
    assert {*baseline._HELD} | {"wrong", "crash"} == set(KINDS)


def test_a_baseline_is_read_as_it_was_written_and_other_files_are_refused():
    text = write(document())
    assert read(text, "base.json") == document()
    assert '\n  "kernels": [\n    ["nn.dense @encoder.layer.0.dense", "add @en' in text
    for wrong, words in (
        ("{", "This is not a baseline"),
        ("[]", "This is not a baseline"),
        (json.dumps({**document(), "baseline": 9}), "format 9"),
        (json.dumps({**document(), "operators": 3}), "lacks operators"),
    ):
        with pytest.raises(EngineError, match=words):
            read(wrong, "base.json")
