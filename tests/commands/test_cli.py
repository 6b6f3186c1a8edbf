"""The command line: one JSON document, promised fields, exit statuses, sentences for errors.

The commands run in this process against an engine without a TVM (page_session.py), and as processes
where the process is the point; some run the real engines."""

import contextlib
import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import page_session
import relascope.commands.main as cli
from answers import ran
from command_line import FAKE, document, on_terminal, run
from fake_tuning import SLOW_TRIALS, TASKS
from page_session import NO_PARTITION_SEED, WRONG_SEED
from place import ROOT
from relascope.core.graph import Graph
from relascope.passes.catalogue import default_pipeline, gradients
from relascope.passes.cuts.cut import STRATEGIES
from relascope.passes.lint import LINTERS


def test_whose_gradient_is_a_choice_in_relax_alone():
    pipelines = document("passes", "--engine", "relax", real=True)["pipelines"]
    assert "root_grad_out|gradient" in pipelines["training"]
    assert "gradient" not in pipelines["training_pytorch"]
    relays = document("passes", "--engine", "relay", real=True)["pipelines"]
    assert list(relays) == ["inference", "training"]
    command = ["captures", "mlp", "--gradient", "pytorch"]
    error = document(*command, "--engine", "relay", status=2)["error"]
    assert "traces" in error["message"] and "--gradient" in error["where"]
    error = document("graph", *command[1:], status=2)["error"]
    assert error["hint"] == "Add --training."
    assert "root_grad_out" not in document(*command, "--engine", "relax")["pipeline"]


def test_gradients_is_a_word_for_diff_with_the_other_gradient():
    data = document("gradients", "mlp", "--measure", "--repeats", "2")
    both = ("diff", "mlp", "mlp", "--training", "--gradient-b", "pytorch", "--passes", "default")
    found = document(*both, "--engine", "relax", status=1)
    pipelines = [default_pipeline("relax", True, g) for g in gradients("relax")]
    assert [data[side]["pipeline"] for side in "ab"] == list(map(str, pipelines))
    assert [data[part] for part in ("model", "end")] == ["mlp", found["end"]]
    assert [r["phase"] for r in data["times"]["rows"]] == ["forward_backward"] * 2
    error = document("gradients", "mlp", "--engine", "relay", status=2)["error"]
    assert "cannot become Relay" in error["message"]


def test_passes_are_listed_and_one_is_shown_in_full_with_its_small_program():
    data = document("passes")
    names = [p["name"] for p in data["passes"]]
    for text in data["pipelines"].values():
        assert {s.lstrip("-") for s in text.split("|")} <= set(names)
    data = document("passes", "fold")
    assert data["pass"]["title"] == "FoldConstant"
    assert {"origin", "needs", "excludes", "before", "after", "parameters"} <= set(data["pass"])
    example = data["example"]
    assert (example["step"], example["before"], example["after"]) == ("fold", "transpose(w)", "w")
    assert len(Graph.from_json(example["graph_before"])) == 7
    text = run("passes", "fold").stdout
    example = "x: float32[2, 3]\n\ntranspose(w)\n→\nw\n\nIt only says so."
    assert "FoldConstant" in text and example in text
    assert document("passes", "cse")["example"] is None
    assert "no example" in run("passes", "cse").stdout


def test_graph_has_the_promised_fields_and_a_graph_that_reads_back():
    data = document("graph", "mlp")
    graph = Graph.from_json(data["graph"])
    assert (data["model"], data["engine"]) == ("mlp", "relay")
    assert (data["nodes"], data["edges"]) == (len(graph), graph.edge_count) == (7, 6)
    assert data["operators"] == {"nn.dense": 2, "nn.relu": 1, "transpose": 1}
    assert document("graph", "mlp", "--passes", "cse|bind|fold")["nodes"] == 6
    assert document("graph", "mlp", "--passes", "cse|bind|-fold")["nodes"] == 7


def test_compare_says_what_each_operator_became_in_both_engines():
    data = document("compare", "mlp")
    assert data["engines"]["relax"] == {"pipeline": "", "nodes": 8, "edges": 7, "error": None}
    linear = next(r for r in data["operators"] if r["source"] == "aten::linear")
    of = {"relay": {"nn.dense": 2}, "relax": {"matmul": 2, "permute_dims": 2}}
    assert linear == {"source": "aten::linear", "modules": 2, **of, "only": None}
    groups = {(r["scope"], r["source"]): r for r in data["groups"]}
    assert groups["layers.0", "aten::t"]["only"] == "relay"
    found = groups["layers.2", "aten::linear"]
    assert (found["occurrences"], found["paired"]) == ({"relay": 1, "relax": 1}, 1)
    calls = {r["operator"]: r for r in data["calls"]}
    assert calls["nn.relu"] == {"operator": "nn.relu", "relay": 1, "relax": 1, "only": None}
    assert calls["matmul"]["only"] == "relax"
    assert data["unmatched"] == {"relay": [], "relax": []}
    text = run("compare", "mlp", "--passes", "default").stdout
    assert re.search(r"aten::linear +2 +nn.dense ×2 +matmul ×2, permute_dims ×2", text)


def test_compare_is_a_word_for_diff_with_the_other_engine_and_says_which_one_fails():
    data = document("compare", "mlp", "--passes", "default")
    both = ("diff", "mlp", "mlp", "--engine-b", "relax", "--passes", "default")
    found = document(*both, status=1)
    timed = ("verdict", "a", "b", "steps")
    own = {k: v for k, v in data.items() if k not in (*timed, "model")}
    assert own == {k: v for k, v in found.items() if k not in timed}
    assert data["model"] == "mlp"
    assert data["verdict"].startswith("They start from different programs")
    assert (found["a"]["engine"], found["b"]["engine"]) == ("relay", "relax")
    assert found["first_difference"]["pass"] is None
    seed = str(page_session.RELAX_SEED)
    error = document("compare", "mlp", "--seed", seed, status=1)["error"]
    assert error["message"].startswith("Relax knows no operator")
    broken = str(page_session.BROKEN_SEED)
    assert document("compare", "mlp", "--seed", broken, status=1)["error"]["kind"] == "operator"
    assert document("compare", "mlp", "--passes", "linear_to_dense", status=2)["error"]


def test_files_are_of_the_kind_that_their_names_say(tmp_path):
    def written(name, *command):
        document(*command, "-o", str(tmp_path / name))
        return (tmp_path / name).read_text()

    assert len(Graph.from_json(json.loads(written("graph.json", "graph", "mlp")))) == 7
    assert written("graph.dot", "graph", "mlp").startswith("digraph")
    head, *rows = written("times.csv", "time", "mlp").splitlines()
    assert head.startswith("what,phase,median_ms") and len(rows) == 2
    head, *rows = written("captures.csv", "captures", "mlp").splitlines()
    assert head.startswith("id,op,name,shape") and len(rows) == 2
    lint = ("lint", "mlp", "--passes", "")
    assert json.loads(written("findings.json", *lint)) == document(*lint)
    graphs = json.loads(written("steps.json", "step", "mlp", "--passes", "cse|bind|fold"))
    assert [len(Graph.from_json(g)) for g in graphs] == [7, 7, 7, 6]


@pytest.mark.engine
def test_step_memory_shows_the_plan_after_each_step_that_has_one():
    given = ("step", "mlp", "--engine", "relax", "--memory", "--passes")
    steps = document(*given, "tvm:default", real=True)["steps"]
    first = next(k for k, s in enumerate(steps) if s["memory"])
    assert steps[first]["pass"] == "CallTIRRewrite" and all(s["memory"] for s in steps[first:])
    plan = next(s["memory"] for s in steps if s["pass"] == "StaticPlanBlockMemory")
    assert len(plan["storages"]) < len(plan["tensors"]) and plan["findings"] == []
    assert plan["peak_bytes"] <= plan["storage_bytes"] < plan["tensor_bytes"]
    text = run(*given, "tvm:default", real=True).stdout
    assert text.count("Storages over the steps") == 2  # as each has its own, and as it is planned
    assert text.count("memory: as after the step before") == len(steps) - first - 2
    text = run(*given, "fold", real=True).stdout
    assert text.endswith("TVM's own pipelines do: --passes tvm:default.\n")
    error = document("passes", "folt", "--engine", "relax", real=True, status=2)["error"]
    assert "'folt'" in error["message"]


def test_step_has_one_row_a_pass_and_checks_those_that_are_on():
    given = ("step", "mlp", "--passes", "cse|-bind|fold")
    assert not any(s["error"] for s in document(*given)["steps"])
    steps = document(*given, "--check")["steps"]
    found = [(s["pass"], s["enabled"], bool(s["error"]), s["removed"]) for s in steps]
    assert found == [("cse", True, True, 0), ("bind", False, False, 0), ("fold", True, True, 1)]
    assert all({"changed", "added", "nodes", "seconds"} <= set(s) for s in steps)
    error = steps[0]["error"]
    about = {"max_abs": 1e-6, "max_rel": 2e-6, "dtype": "float32", "worst": "output 0"}
    assert error.items() >= about.items()
    assert {"mean_abs", "mean_rel", "median_abs", "median_rel", "nans", "infinities"} <= set(error)


def test_step_check_in_training_holds_the_gradients_too_and_says_right_or_wrong():
    failing = "--seed", str(page_session.WRONG_SEED), "--training"
    steps = document("step", "mlp", "--check", *failing)["steps"]
    counts = [s["error"]["compared"] for s in steps]
    before = [s["pass"] for s in steps].index("gradient")
    assert (set(counts[:before]), set(counts[before:])) == ({1}, {2})
    error = steps[-1]["error"]
    assert (error["verdict"], error["limit"], error["scale"]) == ("wrong", 1e-5, 0.5)
    given = document("step", "mlp", "--check", *failing, "--rtol", "0.6")["steps"][-1]["error"]
    assert (given["verdict"], given["limit"]) == ("right", 0.6)


def test_a_step_that_fails_is_named_and_the_rest_goes_on():
    passes = "--passes", f"cse|{page_session.FAILING_PASS}|fold"
    failing = "mlp", "--seed", str(page_session.FAILING_SEED), *passes
    first, failed, last = document("step", *failing, "--check")["steps"]
    assert failed["failure"]["message"] == "The pass met a shape it cannot take."
    assert first["error"] and last["error"]
    assert (first["printed"], failed["printed"]) == ("", "looked at the shape\n")
    assert failed["error"] is failed["check_failure"] is None
    error = document("graph", *failing, status=1)["error"]
    named = f"Step 2, {page_session.FAILING_PASS}, failed: The pass met a shape it cannot take."
    assert error["message"] == named


def test_check_has_a_row_for_every_stage_and_dtype_or_for_those_that_are_asked_for():
    data = document("check", "mlp")
    assert data["passed"] is True
    names = {(r["stage"], r["strategy"]) for r in data["stages"]}
    single = {("forward", ""), ("training forward", ""), ("gradient", "")}
    assert names == single | {(half, s) for half in ("cut", "split") for s in STRATEGIES}
    assert len(data["stages"]) == 2 * len(names)
    found = {(r["dtype"], r["max_rel"], r["first_bad_node"]) for r in data["stages"]}
    assert found == {("float32", 2e-6, None), ("float64", 2e-15, None)}
    cut = next(r for r in data["stages"] if (r["stage"], r["strategy"]) == ("cut", "keep_all"))
    assert cut["compared"] == 3  # the output and the two crossings
    data = document("check", "mlp", "--passes", "cse|bind", "--dtype", "float64")
    assert [(r["stage"], r["dtype"]) for r in data["stages"]] == [("forward", "float64")]
    data = document("check", "mlp", "--training", "--strategy", "inputs_only")
    assert {r["stage"] for r in data["stages"]} == {"training forward", "gradient", "cut", "split"}
    # Of a model that cannot be opened there is no table.
    assert document("check", "mlp", "--seed", "13", status=1)["error"]["kind"] == "operator"


def test_check_names_the_node_where_the_error_jumps():
    wrong = ("check", "mlp", "--seed", str(WRONG_SEED), "--strategy", "keep_all")
    data = document(*wrong)
    by_stage = {r["stage"]: r for r in data["stages"] if r["dtype"] == "float64"}
    assert by_stage["forward"]["passed"] and not data["passed"]
    for stage in ("gradient", "cut", "split"):
        row = by_stage[stage]
        found = row["passed"], row["first_bad_node"], row["first_bad"]["scope"]
        assert found == (False, "r", "layers.1")
    assert "gradient: wrong" in data["verdict"] and "nn.relu" in data["verdict"]
    assert "nn.relu" in run(*wrong).stdout


def test_step_says_where_every_node_went_and_shows_the_text():
    steps = document("step", "mlp", "--passes", "cse|fold", "--changes", "--text")["steps"]
    assert (steps[0]["changes"], steps[0]["diff"]) == ([], "")
    changes = {c["id"]: c for c in steps[1]["changes"]}
    gone = changes["t0"]
    assert (gone["what"], gone["op"], gone["scope"]) == ("removed", "transpose", "layers.0")
    assert (gone["how"], gone["to"], gone["sure"]) == ("left out for", ["w0"], True)
    assert changes["d0"]["from"] == ["w0"]
    before, after = steps[1]["before"], steps[1]["after"]
    assert before["operators"]["transpose"] == 1 and "transpose" not in after["operators"]
    assert after["parameter_bytes"] == 4 * (32 * 16 + 4 * 32)
    (lost,) = [x for x in steps[1]["diff"].splitlines() if x[0] in "+-"][2:]
    assert "changes" not in document("step", "mlp")["steps"][0]
    text = run("step", "mlp", "--passes", "fold", "--changes", "--text").stdout
    assert "left out: its readers read layers.0.weight" in text
    assert lost == "-  %3' = transpose;" and lost in text


def test_captures_take_the_gradient_unasked_and_keep_to_a_budget():
    whole = document("captures", "mlp", "--strategy", "keep_all")
    assert (whole["recomputed"], whole["recomputed_flops"]) == ([], 0)
    assert whole["bytes"] == sum(c["bytes"] for c in whole["captures"]) == 2 * 8 * 32 * 4
    for capture in whole["captures"]:
        assert {"id", "op", "shape", "dtype", "reason"} <= set(capture) and capture["readers"]
    for text, limit in (("0.5", whole["bytes"] // 2), ("1KiB", 1024), ("0", 0)):
        data = document("captures", "mlp", "--strategy", "budget", "--budget", text)
        assert data["bytes"] <= limit == data["budget"]
        assert data["recomputed_flops"] > 0
        assert data["forward_flops"] == whole["forward_flops"]
        crossing = {c["id"] for c in whole["captures"]}
        named = (*data["spared"], *data["held"]["at_peak"]["tensors"])
        assert all({"scope", "source"} <= s.keys() for s in named)
        assert {s["id"] for s in data["spared"]} == crossing - {c["id"] for c in data["captures"]}


def test_captures_stand_beside_what_pytorch_keeps():
    data = document("captures", "mlp")
    assert data["strategy"] == "min_cut"
    kept = {"pytorch_eager_bytes": 2048, "pytorch_min_cut_bytes": 1024, "pytorch_best_bytes": 524}
    assert data["rivals"].items() >= {**kept, "note": ""}.items()
    assert [c["budget"] for c in data["rivals"]["pytorch_cuts"]] == [1.0, 0.8]
    told = "partitioner 1.0 KiB, and with activation_memory_budget=0.8 524 B."
    assert told in run("captures", "mlp").stdout
    seed = "--seed", str(NO_PARTITION_SEED)
    assert document("captures", "mlp", *seed)["rivals"]["pytorch_min_cut_bytes"] is None
    text = run("captures", "mlp", *seed).stdout
    assert "partitioner unknown" in text and "cannot handle this module" in text


def test_captures_by_hand_and_what_is_held_over_the_step():
    data = document("captures", "mlp", "--save", "d0", "--recompute", "r")
    assert [c["id"] for c in data["captures"]] == ["d0"]
    idle = {"d0": "The strategy saves it anyway."}
    assert data["by_hand"] == {"save": ["d0"], "recompute": ["r"], "idle": idle}
    said = run("captures", "mlp", "--save", "r").stderr
    assert "To save r changes nothing. The strategy saves it anyway." in said
    assert "r" in data["recomputed"]
    steps = [(h["phase"], h["id"], h["bytes"]) for h in data["held"]["changes"]]
    assert steps[0] == ("forward", "d0", 2048)  # r, which shares memory, counts, too
    assert {phase for phase, *_ in steps} == {"forward", "backward"}
    peak = data["held"]["at_peak"]
    assert peak["bytes"] == data["peak_bytes"] == max(b for *_, b in steps)
    assert sum(t["bytes"] for t in peak["tensors"]) == peak["bytes"]
    for options, words in (
        ("--save gd", "belongs to the backward"),
        ("--strategy keep_all --save d0", "leaves no choice"),
        ("--offload", "Relay's executor holds them"),
        ("--save host:d0", "Relay's executor holds them"),
        ("--passes cse", "gradient"),
    ):
        error = document("captures", "mlp", *options.split(), status=2)["error"]
        assert error["kind"] == "usage" and words in error["message"]


def test_the_frontier_goes_from_nothing_kept_to_the_shortest_step():
    data = document("captures", "mlp", "--frontier")
    points = data["frontier"]
    assert points[0]["bytes"] == 0 >= points[-1]["net_share"]
    assert sorted(points, key=lambda p: p["bytes"]) == points
    assert sorted(points, key=lambda p: -p["net_share"]) == points
    named = {s["strategy"]: s for s in data["strategies"]}
    assert named["keep_all"].items() >= {"bytes": 2048, "share": 0.0, "net_share": 0.0}.items()
    assert (named["inputs_only"]["bytes"], named["inputs_only"]["captures"]) == (0, 0)
    assert "frontier" not in document("captures", "mlp")
    text = run("captures", "mlp", "--frontier").stdout
    assert "time added" in text and "computed again" in text and "keep_all" in text
    middle = points[1]["bytes"]
    there = document("captures", "mlp", "--strategy", "frontier", "--budget", str(middle))
    of_point = middle, pytest.approx(points[1]["share"]), pytest.approx(points[1]["net_share"])
    assert (there["bytes"], there["share"], there["net_share"]) == of_point


def test_profile_says_of_each_kernel_what_it_took_computes_and_could_do_at_best(tmp_path):
    trace = tmp_path / "trace.json"
    data = document("profile", "mlp", "--repeats", "3", "--trace", str(trace))
    names = [e["name"] for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    assert names == ["fused_add", "dense", "fused_relu_dense", "not in kernels", "forward"]
    assert (data["repeats"], data["first_bad"]) == (3, 2)
    assert data["peaks"]["flops"] == [["float32", 2e7]]
    (phase,), (unknown, product, _) = data["phases"], data["kernels"]
    assert [k["name"] for k in data["kernels"]] == names[:3]
    assert phase["unexplained_ms"] == pytest.approx(0.1) and not phase["explained"]
    assert phase["mapped_share"] == pytest.approx(0.88)
    assert phase["of_peak"] == pytest.approx((8192 + 2304) / 2e7 / 1e-3)
    about = {"nodes": [], "flops": None, "of_peak": None, "roof": None}
    assert unknown.items() >= about.items()
    about = {"operators": ["nn.dense"], "scope": "layers.0", "roof": "compute"}
    assert product.items() >= about.items() and product["outputs"][0]["shape"] == [8, 32]
    assert product["of_peak"] == pytest.approx(8192 / 2e7 / 0.8e-3)
    assert product["flops_per_second"] == pytest.approx(8192 / 0.8e-3)
    said = run("profile", "mlp").stdout
    for words in ("fused_relu_dense.", "no node of the graph", "unknown"):
        assert words in said
    assert said.index("dense  ") < said.index("fused_add  ")  # the slowest first
    assert "20 MFLOP/s in float32" in said and "88.0% of it (0.880 ms)" in said


def test_lint_names_the_place_and_the_pass():
    data = document("lint", "mlp", "--passes", "")
    assert not data["measured"]
    (hazard,) = data["hazards"]
    (finding,) = data["findings"]
    assert (finding["hazard"], finding["remedy"]) == ("constants", "bind|fold")
    assert (finding["nodes"], finding["scope"]) == (["t0"], "layers.0")
    assert (hazard["found"], hazard["bytes"]) == (1, finding["bytes"]) == (1, 2 * 4 * 32 * 16)
    said = run("lint", "mlp", "--passes", "").stdout
    assert all(w in said for w in ("Constant work", "layers.0.weight", "Costs are estimates"))
    # With times, what the build removed is left out: no kernel computes the transpose.
    data = document("lint", "mlp", "--passes", "", "--measure")
    assert data["measured"] and data["findings"] == []
    said = run("lint", "mlp", "--passes", "", "--measure").stdout
    assert f"None of the {len(LINTERS)} linters finds anything." in said


def test_several_ways_and_other_compilers_are_timed_in_one_run():
    rows = document("time", "mlp", "--training", "--variants", "all", "--repeats", "3")["rows"]
    promised = {"q1_ms", "q3_ms", "ratio_to_eager", "max_abs_error", "peak_bytes"}
    assert all(promised <= set(row) for row in rows)
    assert {r["phase"] for r in rows} == {"forward", "forward_backward"}
    names = [r["what"] for r in rows if r["phase"] == "forward_backward"]
    ways = ("cpu", "library", "mixed_precision", "layout")
    assert names == ["pytorch eager", *(f"relay, {way}" for way in ways)]
    built = {r["what"]: (r["target"], r["build_seconds"]) for r in rows}
    assert built["relay, library"] == ("llvm -libs=mkl", 0.25)
    assert built["relay, layout"] == ("llvm", 0.25)
    said = run("time", "mlp", "--variants", "library").stdout
    assert "of minima" in said and "1.44" in said and "4.0 KiB" in said
    assert said.count("relay, ") == 2 and "1.32× slower than eager" in said
    error = document("time", "mlp", "--variants", "library,magic", status=2)["error"]
    assert "magic" in error["message"] and "library" in error["hint"]
    data = document("time", "mlp", "--baseline", "torch.compile", "--repeats", "3")
    rows, machine = data["rows"], data["machine"]
    assert machine == "a test machine"
    assert [r["what"] for r in rows] == ["pytorch eager", "relay, cpu", "torch.compile"]
    assert rows[-1]["ours_over"] == 1.65 and rows[1]["ours_over"] is None


@pytest.mark.parametrize("name", ["runs.csv", "runs.jsonl"])
def test_a_history_grows_by_each_run(tmp_path, name):
    file = tmp_path / name
    document("time", "mlp", "--history", str(file))
    document("time", "mlp", "--training", "--history", str(file))
    lines = file.read_text().splitlines()
    if name.endswith(".csv"):
        rows = list(csv.DictReader(lines))
        assert [r["training"] for r in rows] == ["False"] * 2 + ["True"] * 4
        assert rows[1]["median_ms"] == "1.32" and rows[1]["min_ms"] == "1.3"
        assert rows[1]["target"] == "llvm" and rows[1]["model"] == "mlp"
        file.write_text("model,median_ms\n")  # of an older version
        document("time", "mlp", "--history", str(file))
        assert file.read_text().splitlines()[2] == "mlp,1.32"
    else:
        assert [len(json.loads(line)["rows"]) for line in lines] == [2, 4]
        assert json.loads(lines[0])["when"] <= json.loads(lines[1])["when"]
    error = document("time", "mlp", "--history", str(tmp_path / "no" / "f.csv"), status=1)["error"]
    assert error["kind"] == "file"


def test_compile_tells_of_what_it_built_and_keeps_it(tmp_path):
    data = document("compile", "mlp", "--target", "cuda -arch=sm_90", "--training")
    assert data["target"]["runs_here"] is False
    assert data["notes"] == ["It cannot be timed here. It is elsewhere."]
    assert {k["phase"]: k["bytes"] for k in data["kernels"]} == {"forward": 2048, "backward": None}
    assert data["code_bytes"] is None and data["library_bytes"] == 8192
    assert "code" not in data["kernels"][0] and data["kernels"][0]["lines"] == {"CUDA": 3, "PTX": 1}
    data = document("compile", "mlp", "--target", "llvm", "--code")
    assert data["code_bytes"] == 2048 and data["notes"] == []
    assert "fma" in data["kernels"][0]["code"]["CUDA"]
    said = run("compile", "mlp", "--target", "cuda", "--code", "-o", str(tmp_path / "new")).stdout
    assert "2.0 KiB" in said and "== forward dense, PTX\nfma.rn.f32;" in said
    assert "1 files written" in said
    (tmp_path / "file").write_text("here")
    error = document("compile", "mlp", "--target", "cuda", "-o", str(tmp_path), status=2)["error"]
    assert "a new or empty folder" in error["message"]
    error = document("compile", "mlp", "--target", "nonsense", status=1)["error"]
    assert error["kind"] == "target"


@pytest.mark.parametrize("command", ["models", "passes", "graph mlp", "step mlp", "captures mlp"])
def test_without_json_there_is_an_aligned_table(command):
    done = run(*command.split())
    assert done.returncode == 0, done.stderr
    rules = [line for line in done.stdout.splitlines() if set(line) == {"-", " "}]
    # Of passes also what they can be told; of a graph its arguments, and what the import did.
    assert len(rules) == {"passes": 2, "graph mlp": 3, "captures mlp": 2}.get(command, 1)


def test_a_process_prints_one_document_and_a_reader_may_have_seen_enough():
    shell, command = ("bash", "-o", "pipefail", "-c"), f"{sys.executable} cli.py models --json"
    done = ran(*shell, command, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)["models"]
    assert rows == document("models")["models"]
    assert {"mlp", "bert_layer", "bert"} <= {r["name"] for r in rows}
    for row in rows:
        assert row["engines"] == ["relay", "relax"] and row["parameters"] > 0
        assert isinstance(row["training"], bool)
    done = ran(*shell, f"{command} | head -c 10", cwd=ROOT)
    assert (done.stdout, done.returncode) == ('{"models":', 0) and "Traceback" not in done.stderr


def test_an_engine_error_is_the_document_and_a_sentence_on_stderr():
    done = run("graph", "mlp", "--seed", "13", "--json")
    error = json.loads(done.stdout)["error"]
    assert set(error) == {"kind", "message", "where", "hint", "instead"} and done.returncode == 1
    assert "aten::frobnicate" in error["message"]
    assert "encoder.layer.0, net.py:12" in done.stderr and "Traceback" not in done.stderr
    assert "To open a part without it, add --module layers.0 or --module head.\n" in done.stderr


def test_a_file_that_is_not_there_or_cannot_be_written(tmp_path):
    target = str(tmp_path / "no" / "graph.json")
    for given, where in ((["no/such.pt"], "no/such.pt"), (["mlp", "-o", target], target)):
        error = document("graph", *given, status=1)["error"]
        assert (error["kind"], error["where"]) == ("file", where)
        assert ("bert_layer" in error["hint"]) == (where != target)


@pytest.mark.parametrize(
    "args",
    [
        *("frobnicate", "graph", "graph mlp --engine none", "graph mlp --batch 0"),
        *("graph mlp --batch x", "captures mlp --strategy x", "step mlp --unknown"),
        *("captures mlp --strategy budget --budget 1.5", "tune mlp --trials 0"),
    ],
)
def test_wrong_usage_is_status_2_and_prints_nothing_on_stdout(args):
    done = run(*args.split())
    assert (done.returncode, done.stdout) == (2, "") and "usage:" in done.stderr


@pytest.mark.parametrize(
    ("option", "text"),
    [*(("--passes", t) for t in ("cse,fold", "nope", "cse||fold")), ("--input", "x=1:float32")],
)
def test_what_is_malformed_or_does_not_fit_a_sample_is_wrong_usage(option, text):
    error = document("step", "mlp", option, text, status=2)["error"]
    assert (error["kind"], error["where"]) == ("usage", option)


def test_what_went_wrong_inside_is_told_in_words_and_the_log_only_on_request():
    failing = ("graph", "mlp", "--seed", str(page_session.SURPRISING_SEED))
    told = ran(sys.executable, "-c", FAKE, *failing, "--verbose", cwd=ROOT)
    for made, logged in ((run(*failing), False), (told, True)):
        assert made.returncode == 1 and "error: ValueError: a surprise" in made.stderr
        assert ("Traceback" in made.stderr) == logged


def test_progress_is_one_line_and_ctrl_c_stops_the_engine_and_says_so():
    process, terminal = on_terminal("graph", "mlp")
    out, _ = process.communicate(timeout=60)
    shown = read_all(terminal)
    assert json.loads(out)["nodes"] == 7  # stdout is left alone
    assert b"importing" in shown and b"\n" not in shown
    process, terminal = on_terminal("time", "mlp", "--repeats", "777")
    shown = b""
    while b"timing slowly" not in shown:
        shown += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    shown += read_all(terminal)
    assert (process.returncode, json.loads(out)["error"]["kind"]) == (1, "cancelled")
    assert b"Stopped" in shown and b"Traceback" not in shown


def read_all(terminal):
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that nobody can write any more
        while chunk := os.read(terminal, 4096):
            shown += chunk
    os.close(terminal)
    return shown


def test_the_price_of_work_and_captures_are_measured_on_request():
    keep = ("captures", "mlp", "--strategy", "inputs_only")
    data = document(*keep, "--prices", "measured")
    assert (document(*keep)["prices"], data["prices"]) == ("estimated", "measured")
    assert data["forward_seconds"] == pytest.approx(8.8e-4)  # of the two kernels that have nodes
    assert "measured time" in run(*keep, "--prices", "measured").stdout
    data = document("captures", "mlp", "--measure", "--frontier", "--repeats", "3")
    titles = [p["title"] for p in data["measured"]]
    assert titles == ["min_cut", "peak", "recompute_pointwise", "keep_all", "inputs_only"]
    each = {"ratio": 1.32, "measured_share": 0, "max_abs_error": 1e-6, "peak_bytes": 4096}
    for point in data["measured"]:  # all as fast as keep_all
        assert point.items() >= each.items()
    assert data["measured"][0]["estimated_peak_bytes"] == data["peak_bytes"]
    assert data["measured_peak_bytes"] == 4096 == data["strategies"][-1]["measured_peak_bytes"]
    assert not {"measured", "measured_peak_bytes"} & document("captures", "mlp").keys()
    printed = run("captures", "mlp").stdout
    assert "estimated, not measured; " in printed and "captures --measure" in printed
    printed = run("captures", "mlp", "--measure").stdout
    assert "estimated, 4.0 KiB measured; " in printed and "captures --measure" not in printed
    assert "work again, estimated" in printed
    data = document("captures", "mlp", "--strategy", "peak")
    assert 0 < data["least_peak_bytes"] <= data["peak_bytes"]
    over = math.ceil(100 * (data["peak_bytes"] / data["least_peak_bytes"] - 1))
    printed = run("captures", "mlp", "--strategy", "peak").stdout
    assert f"not measured, within {over} % of the least possible; " in printed


def test_step_holds_each_node_against_pytorch_and_says_what_it_is():
    steps = document("step", "mlp", "--passes", "bind|fold|-cse", "--inside")["steps"]
    assert steps[2]["inside"] is steps[0]["inside_failure"] is None
    inside = steps[1]["inside"]
    assert inside["verdict"].startswith("It is wrong")
    assert [c["dtype"] for c in inside["compared"]] == ["float32", "float64"]
    worst = inside["compared"][0]["nodes"][0]
    said = "aten::relu in layers.1"
    assert (worst["id"], worst["max_abs"], worst["counterpart"]) == ("r", 0.25, said)
    told = run("step", "mlp", "--passes", "bind", "--inside").stdout
    assert "It is wrong" in told and said in told


def test_what_cannot_be_written_is_said_in_a_sentence(capsys):
    for options in ((), ("--json",)):
        with open("/dev/full", "w") as full, contextlib.redirect_stdout(full):
            assert cli.main(["models", *options]) == 1
        said = capsys.readouterr().err
        assert said == "error: The result cannot be written: No space left on device.\n"


def test_a_name_gives_a_terminal_no_orders():
    for encoding, seen in (("utf-8", "é…"), ("ascii", r"\u00e9\u2026")):
        out = io.TextIOWrapper(io.BytesIO(), encoding)
        assert cli._print("a\x1b[2J\r\x9b1m\udc80é…\tb\n", out)
        wanted = r"a\u001b[2J\r\u009b1m\udc80" + seen + "\tb\n\n"
        assert out.buffer.getvalue().decode(encoding) == wanted


def test_pipelines_of_tvms_and_the_place_of_the_viewer_are_said(tmp_path):
    assert run("passes", "tvm:").stdout == "tvm:O3: FoldConstant|FuseOps\n"
    assert document("passes", "tvm:O4", status=2)["error"]["hint"] == "It has O3."
    assert f"Open {tmp_path}/index.html" in run("viewer", "-o", str(tmp_path)).stdout


DENSE, FUSED = TASKS


def test_tasks_lists_kernels_with_shapes_calls_and_shares(no_records):
    data = document("tasks", "mlp")
    assert (data["model"], data["engine"], data["target"]) == ("mlp", "relay", "llvm")
    rows = {t["key"]: t for t in data["tasks"]}
    assert list(rows) == [DENSE, FUSED]
    about = {"key": DENSE, "name": "dense", "shapes": [[8, 32]], "dtypes": ["float32"], "calls": 1}
    about |= {"flops": 8192.0, "share": None, "before_ms": 0.8, "best_ms": None, "trials": 0}
    about |= {"uses_record": False, "nodes": ["d0"], "operators": ["nn.dense"]}
    assert rows[DENSE] | {"share": None} == about
    assert sum(t["share"] for t in data["tasks"]) == pytest.approx(1.0)
    text = run("tasks", "mlp").stdout
    assert re.search(r"dense +8x32: float32 +1 .*88\.9 % .*dense-0a1b", text)


def test_tune_measures_keeps_and_goes_on(no_records):
    data = document("tune", "mlp", "--trials", "3", "--threads", "1")
    done = [(t["key"], t["trials"], t["failed"]) for t in data["tasks"]]
    assert done == [(DENSE, 3, 1), (FUSED, 3, 1)]
    assert not data["cancelled"] and data["run"]
    assert [c["trial"] for c in data["curve"]] == [1, 2, 3, 1, 2, 3]
    assert data["curve"][1]["ms"] is None and data["curve"][1]["best_ms"] is not None
    assert all(t["best_ms"] < t["before_ms"] and t["uses_record"] for t in data["tasks"])
    first = data["tasks"][0]["best_ms"]
    data = document("tune", "mlp", "--trials", "2", "--threads", "1", "--tasks", "dense")
    (row,) = data["tasks"]
    assert (row["earlier_ms"], row["trials"]) == (first, 2) and row["best_ms"] < first
    assert [c["trial"] for c in data["curve"]] == [4, 5]
    rows = document("tasks", "mlp", "--threads", "1")["tasks"]
    assert {t["key"]: t["trials"] for t in rows} == {DENSE: 5, FUSED: 3}
    assert document("tasks", "mlp", "--threads", "2")["tasks"][0]["trials"] == 0
    text = run("tune", "mlp", "--trials", "1", "--threads", "1", "--top", "1").stdout
    assert "1 trials;" in text and "fused_relu_dense" not in text
    assert re.search(r"its record +dense-0a1b", text)


def test_a_task_that_is_none_is_refused_and_training_takes_a_strategy(no_records):
    error = document("tune", "mlp", "--tasks", "conv", status=2)["error"]
    assert error["kind"] == "usage" and "--tasks" in error["where"]
    data = document("tune", "mlp", "--training", "--strategy", "keep_all", "--trials", "1")
    assert data["strategy"] == "keep_all"


def test_progress_has_the_best_so_far_and_the_time_left(no_records):
    process, terminal = on_terminal("tune", "mlp", "--trials", str(SLOW_TRIALS))
    seen, deadline = "", time.monotonic() + 60
    while not re.search(r"dense: trial \d+ of 777, best 0\.\d+ ms; .* left", seen):
        assert time.monotonic() < deadline, seen
        seen += os.read(terminal, 4096).decode()
    group = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True)
    engines = [int(p) for p in group.stdout.split()]
    assert engines
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    os.close(terminal)
    data = json.loads(out)
    assert data["cancelled"] and process.returncode == 1
    dense, fused = data["tasks"]
    assert (dense["best_ms"] is not None, fused["trials"]) == (True, 0)
    assert len(data["curve"]) == dense["trials"] >= 1
    for pid in engines:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    after = document("tune", "mlp", "--trials", "1", "--tasks", DENSE)
    assert after["curve"][0]["trial"] == dense["trials"] + 1
