"""The search for the pass that breaks a pipeline: by itself, on the command line, on the page."""

import json
import math
import os
import random
from types import SimpleNamespace
from unittest.mock import patch

import pytest

import faulty_session
import page_session
from answers import engine
from command_line import document
from graphs import graph_of
from page import press, settle, step
from relascope.core.errors import EngineError
from relascope.engine.jobs import bisect as bisection
from relascope.engine.jobs import step as stepping
from relascope.engine.jobs.accuracy import Tolerance
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.results import IMPORTED, Branches
from relascope.engine.protocol.source import ModelSource
from relascope.passes import catalogue
from relascope.passes.catalogue import PassInfo, default_pipeline, names, user
from relascope.passes.pipeline import Pipeline, Step
from relascope.passes.search.bisect import IMPORT, Culprits, Verdict, half_way, kept_on, search
from relascope.viz.panels.steps import tab as steps_panel

GOOD, BAD, DARK = Verdict


class Oracle:
    """Judges a pipeline of steps named after their places ("p0"): bad from `culprit` on (None:
    never); a step of `needs` fails without those that it needs, unknown to the search."""

    def __init__(self, culprit, needs=None):
        self.culprit, self.needs, self.asked = culprit, needs or {}, []

    def __call__(self, pipeline):
        assert pipeline not in self.asked, "nothing is asked twice"
        self.asked.append(pipeline)
        on = {int(s.name[1:]) for s in pipeline if s.enabled}
        if any(not set(needed) <= on for step, needed in self.needs.items() if step in on):
            return DARK
        return BAD if self.culprit == IMPORT or self.culprit in on else GOOD


def steps(count, off=()):
    return Pipeline(tuple(Step(f"p{i}", i not in off) for i in range(count)))


def most(n):
    return math.ceil(math.log2(n)) + 2 if n else 1


def test_required_steps_and_those_switched_off_in_random_pipelines():
    chance = random.Random(0)
    for _ in range(600):
        count = chance.randint(1, 30)
        off = {i for i in range(count) if chance.random() < 0.2}
        kept = {i for i in range(count) if i not in off and chance.random() < 0.4}
        on = sorted(set(range(count)) - off)
        if not on:
            continue
        culprit = chance.choice([IMPORT, *on])
        oracle = Oracle(culprit)
        assert search(steps(count, off), oracle, kept).suspects == (culprit,)
        assert len(oracle.asked) <= most(len(on))
        for asked in oracle.asked:
            switched = {i for i, s in enumerate(asked) if s.enabled}
            assert not switched & off
            # Required steps go only where they are bad by themselves, and then from the end.
            assert kept & set(range(len(asked))) <= switched


def test_where_nothing_is_wrong_or_nothing_runs_no_pass_is_to_blame():
    oracle = Oracle(None)
    assert search(steps(8), oracle) == Culprits(())
    assert len(oracle.asked) == 1
    assert search(steps(4), lambda pipeline: DARK) == Culprits(())
    for pipeline in (Pipeline(), steps(3, off={0, 1, 2})):
        assert search(pipeline, Oracle(IMPORT)).suspects == (IMPORT,)
        assert search(pipeline, Oracle(None)).suspects == ()


def test_an_optional_pass_that_a_required_one_needs_unknown_to_the_catalogue():
    # p7 is required and fails without p2: nothing runs that ends before p2.
    for culprit in (3, 4, 5, 6):
        assert search(steps(8), Oracle(culprit, {7: {2}}), {7}).suspects == (culprit,)
    for culprit in (0, 1, 2):  # nothing good was ever seen, and that is said
        found = search(steps(8), Oracle(culprit, {7: {2}}), {7})
        assert found.suspects == (IMPORT, 0, 1, 2)
        assert found.good is None


def test_some_steps_fail_without_others_at_random():
    chance = random.Random(1)
    for _ in range(400):
        count = chance.randint(2, 20)
        needs = {i: {chance.randrange(count)} for i in range(count) if chance.random() < 0.15}
        culprit = chance.randrange(count)
        oracle = Oracle(culprit, needs)
        found = search(steps(count), oracle)
        assert culprit in found.suspects
        assert len(oracle.asked) <= count + 1
        assert Oracle(culprit, needs)(found.bad) is BAD
        assert found.good is None or Oracle(culprit, needs)(found.good) is GOOD
        if len(found.suspects) > 1:  # and truly nothing between them can be run
            first, last = found.suspects[0], found.suspects[-1]
            for end in range(max(first, 0), last):
                part = Pipeline(tuple(Step(f"p{i}", i <= end) for i in range(count)))
                assert Oracle(culprit, needs)(part) is DARK


def test_the_catalogue_says_what_stays_on(monkeypatch):
    def entry(name, required=False, needs=()):
        return PassInfo(name, "relay", name, "", "", "", required=required, needs=needs)

    entries = [entry("a"), entry("b", needs=("a",)), entry("c"), entry("r", True, ("b",))]
    monkeypatch.setattr(catalogue, "CATALOGUE", {("relay", e.name): e for e in entries})
    kept = {"a|c|b|c|r|a": {0, 2, 4}, "a|b|-b|c": set(), "a|b|a|b|r": {2, 3, 4}, "c|-r|c": set()}
    assert {text: kept_on("relay", Pipeline.parse(text)) for text in kept} == kept


@pytest.mark.parametrize("ir", ["relay", "relax"])
def test_the_way_to_the_gradient_is_kept_and_its_middle_is_no_place_to_look(ir):
    pipeline = default_pipeline(ir, True)
    kept = [s.name for i, s in enumerate(pipeline) if i in kept_on(ir, pipeline)]
    assert {"decompose_layer_norm", "root_grad_out", "gradient"} <= set(kept)
    assert not {"cse", "dce", "drop_zeros"} & set(kept)
    assert "cse" in names(ir)
    places = [s.name for s in pipeline]

    ends = {name: half_way(ir, pipeline, pipeline.upto(i)) for i, name in enumerate(places)}
    assert ends["root_grad_out"] and not ends["decompose_layer_norm"] and not ends["cse"]
    assert ends["gradient"] == (ir == "relay")  # whose let bindings become a graph after it
    assert not half_way(ir, pipeline, pipeline)


PIPELINE = "bind|fold|cse|fuse"


@pytest.fixture
def asked(connect):
    def ask(seed, *options, passes=("--passes", PIPELINE), status=0):
        given = "bisect", "mlp", "--seed", str(seed), *passes, *options
        return document(*given, status=status, connect=connect)

    return ask


def test_the_command_line_says_which_pass_is_wrong_and_how_it_knows(asked):
    data = asked(faulty_session.WRONG_FOLD)
    assert data["suspects"] == [data["culprit"]] == [{"index": 1, "pass": "fold"}]
    assert data["kind"] == "wrong" and data["compiles"] == len(data["log"]) <= 4
    # fuse is only for looking: it is in the first try, and none but that.
    found = " ".join(f"{t['last']['pass']}:{t['outcome']}" for t in data["log"])
    assert found == "fuse:wrong import:good bind:good fold:wrong"
    assert data["log"][2]["pipeline"] == "bind|-fold|-cse|-fuse"
    assert data["log"][0]["max_rel"] == 0.5 and not data["float64"]["passed"]
    assert data["verdict"] == (
        "Step 2, fold (FoldConstant), makes it wrong: output 0 is off by 5.0e-01 of its scale "
        "(limit 1e-05). Without it: output 0 is right to 2.0e-06 of its scale (limit 1e-05). It is "
        "wrong, not rounded: float64 is over its limit, too, first at nn.relu in layers.1."
    )
    data = asked(faulty_session.ROUGH_FOLD)
    assert data["culprit"]["pass"] == "fold" and data["float64"]["passed"]
    assert "It is rounding" in data["verdict"]


@pytest.mark.parametrize(
    ("seed", "options", "first"),
    [
        (faulty_session.WRONG_FOLD, ("--dtype", "float64"), ["wrong", "good"]),
        (faulty_session.FINE_FOLD, (), ["good", "wrong"]),
        (faulty_session.ROUGH_IMPORT, (), ["wrong", "wrong"]),
    ],
)
def test_what_is_or_has_to_be_looked_for_in_float64(asked, seed, options, first):
    data = asked(seed, *options)
    assert (data["culprit"]["pass"], data["kind"], data["float64"]) == ("fold", "wrong", None)
    assert data["verdict"].endswith("This was in float64: it is wrong, not rounded.")
    assert [t["outcome"] for t in data["log"][:2]] == first


def test_a_fault_behind_a_permitted_rounding_is_found(asked):
    wrong = faulty_session.WRONG_FOLD
    assert asked(wrong, "--rtol", "0.6")["culprit"] is None
    assert asked(wrong, "--atol", "0.3")["culprit"] is None
    assert asked(wrong, "--rtol", "0.4", "--atol", "0.1")["culprit"]["pass"] == "fold"


def test_a_pass_that_ends_the_process_or_raises_is_found_and_the_session_goes_on(asked):
    data = asked(faulty_session.FATAL_CSE)
    assert (data["culprit"]["index"], data["kind"]) == (2, "crash")
    assert [t["outcome"] for t in data["log"]].count("crash") >= 2
    assert "exit status 3" in data["verdict"]
    data = asked(faulty_session.RAISING_FOLD)
    assert (data["culprit"]["index"], data["kind"]) == (1, "crash")
    error = asked(faulty_session.RAISING_FOLD, "--kind", "wrong", status=1)["error"]
    assert error["message"] == data["log"][0]["error"]["message"] == "No good."


def test_slow_is_a_ratio_above_the_factor(asked):
    slow = faulty_session.SLOW_FOLD, "--kind", "slow", "--factor"
    data = asked(*slow, "2")
    assert (data["culprit"]["pass"], data["kind"]) == ("fold", "slow")
    assert "makes it slow: 3.00 times the time without it." in data["verdict"]
    pace = {t["pipeline"]: (t["outcome"], t["ratio"]) for t in data["log"]}
    assert pace["bind|-fold|cse|-fuse"] == ("slow", 3.0)
    assert pace["-bind|fold|cse|-fuse"] == ("good", 1.0)
    assert asked(*slow, "3.5")["culprit"] is None
    data = asked(*slow, "1.1", "--training", passes=())  # forward and backward at a cut
    assert (data["culprit"], data["log"][0]["ratio"]) == (None, 1.0)
    assert all("root_grad_out|gradient" in t["pipeline"] for t in data["log"])


def test_the_import_is_to_blame_where_it_is_wrong_and_one_that_fails_is_an_error(asked):
    data = asked(faulty_session.WRONG_IMPORT)
    assert (data["culprit"], data["compiles"]) == ({"index": -1, "pass": "import"}, 2)
    assert data["verdict"].startswith("The imported program is at fault, before any pass")
    assert asked(page_session.BROKEN_SEED, status=1)["error"]["kind"] == "operator"


def test_nothing_to_find_says_what_was_tried(asked):
    data = asked(0, "--repeats", "3")
    assert (data["culprit"], data["kind"], data["compiles"]) == (None, None, 6)  # float64, too
    assert data["verdict"] == (
        "Nothing to find: the whole pipeline runs and agrees with PyTorch within 1e-05 of the "
        "scale in float32 and 1e-10 of the scale in float64, built and run 3 times on sample "
        "inputs (seed 0). The longest pass, step 1, bind (bind parameters), took 0.002 s; "
        "no memory stayed."
    )
    crash = asked(0, "--kind", "crash")["verdict"]
    assert "the whole pipeline does not crash, built and run once on sample inputs" in crash
    taking = asked(faulty_session.TAKING_FOLD)
    assert "The longest pass, step 2, fold (FoldConstant), took 15 s; " in taking["verdict"]
    assert "most memory stayed after step 2, fold (FoldConstant): 3072.0 MiB." in taking["verdict"]
    assert taking["taken"]["longest"] == {"index": 1, "pass": "fold", "seconds": 15.0}
    assert taking["taken"]["most_kept"] == {"index": 1, "pass": "fold", "bytes": 3 << 30}


def test_slow_passes_and_those_that_keep_memory_are_kinds(asked):
    stayed = "keeps memory: 3072.0 MiB stayed after it (limit 256 MiB)."
    for kind, called, said, option, much in (
        ("slow", "long", "is slow itself: it took 15 s (limit 10 s).", "--pass-seconds", "16"),
        ("memory", "memory", stayed, "--pass-memory", "4e3"),
    ):
        data = asked(faulty_session.TAKING_FOLD, "--kind", kind)
        assert (data["culprit"]["pass"], data["kind"]) == ("fold", called)
        assert data["verdict"] == f"Step 2, fold (FoldConstant), {said}"
        data = asked(faulty_session.TAKING_FOLD, "--kind", kind, option, much)
        assert data["culprit"] is None and data["verdict"].startswith("Nothing to find: ")
        assert f"{float(much):g}" in data["verdict"]


def imported(size="n", branches=None):
    """What came without PyTorch: an `if` over two values of an open size."""
    graph = graph_of(f"x :{size}x4; up :/bool; if if up x x :{size}x4", ir="relax")
    return SimpleNamespace(against=IMPORTED, graph=graph, branches=branches or Branches(("up",)))


def without_pytorch(*about, bad=lambda run: False, unfit=lambda run: False):
    """An engine of a program that came without PyTorch; `bad` says of a run whether `cse` is wrong
    in it, `unfit` whether it cannot be run."""

    def check(request):
        run = dict(request.source.run)
        if unfit(run):
            raise EngineError("engine", "It does not fit.", "check")
        error = 1.0 if bad(run) and any(s.enabled for s in request.pipeline) else 1e-9
        return (Comparison("output 0", error, error, 1.0, "float32"),)

    return engine(check=check, step=(), load=imported(*about))


def searched(ask):
    question = bisection.Question(ModelSource("a.json"), Pipeline.parse("cse"), "llvm")
    result = bisection.bisect(ask, "relax", question)
    return result, bisection.verdict("relax", result)


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        (lambda run: run.get("n") == 1, "n = 1"),
        (lambda run: run.get("n", 3) > 3, "n = 5"),
        (lambda run: run.get("up") is False, "up = false"),
        (lambda run: run.get("up") and run.get("n") == 5, "n = 5 and up = true"),
    ],
)
def test_other_sizes_and_both_sides_of_an_if_are_run_and_named(bad, where):
    result, said = searched(without_pytorch(bad=bad))
    assert (result.kind, result.culprits.suspects) == ("wrong", (0,))
    assert f"This was on sample inputs at {where}." in said
    assert f"Numbers are compared with {IMPORTED}." in said


def test_an_import_that_crashes_in_another_way_is_not_to_blame():
    def check(request):
        if any(step.enabled for step in request.pipeline):
            raise EngineError("type", "cse returned a program that is not well-formed", "cse")
        raise EngineError("engine", "A kernel of it cannot be scheduled.", "check")

    result, _ = searched(engine(check=check, load=imported("n", Branches((), (), 0))))
    assert result.kind == "crash"
    assert result.culprits.suspects == (IMPORT, 0), "between the two nothing can be run"


def test_what_other_runs_do_not_reach_is_said():
    _, said = searched(without_pytorch(unfit=lambda run: run.get("n") == 1))
    assert "It also ran at n = 5; up = true; n = 5 and up = true;" in said
    assert "The imported program does not run at n = 1 (It does not fit.); " in said
    assert "Not run" not in said
    _, said = searched(without_pytorch("n*2", Branches((), ("lv",), 2)))
    ran = "n = 1; n = 5; lv = true (forced); lv = false (forced)"
    left = "the sides of 2 `if` in recursive functions"
    assert f"It also ran at {ran}. Not run: {left}." in said
    _, said = searched(without_pytorch("?", Branches(computed=tuple("abcd"))))
    assert "Not run: other sizes (?) and 2 more runs of these." in said


def test_a_program_without_pytorch_agrees_with_what_it_was_compared_with():
    question = bisection.Question(ModelSource("a.json"), Pipeline.parse("cse"), "llvm")
    result = bisection.bisect(without_pytorch(), "relay", question)
    assert result.compiles == 1  # it has one precision, and is not built for other sizes anew
    said = bisection.verdict("relay", result)
    assert "agrees with the imported program within 1e-05 of the scale in float32, " in said
    assert "PyTorch" not in said and "float64" not in said


def crossing(request, *rest):
    """A check in which a required gradient step fails without an optional pass before it."""
    on = {s.name for s in request.pipeline if s.enabled}
    if "drop_zeros" in on:
        raise EngineError("pass", "Bad.", "x + 0")
    if "gradient" in on and "cse" not in on:
        raise EngineError("pass", "There is nothing to work on.", "gradient")
    return (Comparison("output 0", 1e-9, 1e-9, 1.0, "float32"),)


def test_a_required_step_that_fails_for_want_of_another_is_no_crash_of_that_one():
    pipeline = Pipeline.parse("cse|root_grad_out|gradient|graph_normal_form|dce|drop_zeros")
    question = bisection.Question(ModelSource("mlp", training=True), pipeline, "llvm")
    result = bisection.bisect(engine(check=crossing), "relay", question)
    assert (result.kind, result.culprits.suspects) == ("crash", (5,))
    assert [t.outcome for t in result.log][:2] == ["crash", "crash"]


def find(page, seed):
    settle(page.number_input(key="keep_seed").set_value(seed).run())
    page.button(key="bisect_button").click()
    return page.run()


@pytest.fixture
def marked(monkeypatch):
    """Of each time that the list of steps is drawn, the rows that say a failure, by their index."""
    drawn, real = [], steps_panel.rows

    def spy(*about):
        drawn.append({i: r for i, r in enumerate(real(*about)) if r.failure})
        return real(*about)

    monkeypatch.setattr(steps_panel, "rows", spy)
    return drawn


def test_the_page_finds_the_pass_and_marks_it(page, marked):
    settle(find(page, faulty_session.WRONG_FOLD))
    index = [s.name for s in default_pipeline("relay", False)].index("fold")
    (said,) = page.error
    assert said.value.startswith(f"Step {index + 1}, fold (FoldConstant), makes it wrong")
    assert {i: r.failure for i, r in marked[-1].items()} == {index + 1: "This step makes it wrong."}
    log = next(d.value for d in page.dataframe if "outcome" in d.value.columns)
    assert list(log["outcome"])[:2] == ["wrong", "good"]
    assert len(log) <= most(len(default_pipeline("relay", False)))


def test_the_page_takes_a_tolerance_repeats_and_has_memory_as_a_kind(page):
    settle(page.number_input(key="keep_seed").set_value(faulty_session.FLAKY_FOLD).run())
    page.number_input(key="keep_bisect_runs").set_value(4)
    press(page, "bisect_button")
    assert "in 2 of 4 runs" in page.error[0].value
    page.number_input(key="keep_bisect_rtol").set_value(0.6)
    press(page, "bisect_button")
    assert page.success[0].value.startswith("Nothing to find")
    page.number_input(key="keep_seed").set_value(faulty_session.TAKING_FOLD)
    settle(page.selectbox(key="keep_bisect_kind").set_value("keeping memory").run())
    press(page, "bisect_button")
    assert "fold (FoldConstant), keeps memory: " in page.error[0].value
    press(page, "reduce_button")
    assert "the fault shows with 1 of the" in page.info[0].value


def test_a_step_that_ends_the_process_is_red_and_the_others_go_on(page, marked):
    settle(page.number_input(key="keep_seed").set_value(faulty_session.FATAL_CSE).run())
    (failed,) = marked[-1].values()
    assert failed.title == "EliminateCommonSubexpr"
    assert "exit status 3 during step" in failed.failure
    assert not page.error  # the chosen step, the last one, has its graph
    assert step(page) == (11, 11)


def test_step_on_the_command_line_goes_on_past_it(connect, tmp_path):
    out, seed = tmp_path / "graphs.json", str(faulty_session.FATAL_CSE)
    given = "step", "mlp", "--seed", seed, "--passes", "bind|cse|-fuse|fold|cse|dce", "--check"
    steps = document(*given, "-o", str(out), connect=connect)["steps"]
    assert [s["pass"] for s in steps if s["failure"]] == ["cse", "cse"]
    assert all(s["enabled"] and s["failure"]["kind"] == "engine" for s in steps if s["failure"])
    assert [bool(s["error"]) for s in steps] == [True, False, False, True, False, True]
    assert steps[3]["removed"] == 1
    assert len(json.loads(out.read_text())) == 7


def test_a_process_that_ends_at_the_import_is_no_fault_of_a_step():
    asked = []

    def ask(method, source, *rest):
        asked.append(method)
        raise EngineError("engine", f"It ended during {method}.")

    with pytest.raises(EngineError, match="during load"):
        stepping.step(ask, ModelSource("mlp"), Pipeline.parse(PIPELINE))
    assert asked == ["step", "load"]


def test_of_several_runs_the_numbers_are_those_of_the_worst():
    found = [Comparison("output 0", e, e, 1.0, "float32") for e in [1e-7, 5.0, 2.0]]
    asked = ModelSource("mlp"), Pipeline(), "llvm"
    question = bisection.Question(*asked, tolerance=Tolerance(1e-3), runs=3)
    done = bisection.tried(lambda method, *_: found if method == "check" else None, question)
    assert (done.outcome, done.runs, done.bad) == ("wrong", 3, 2)
    assert (done.worst, done.max_abs, done.limit) == ("output 0", 5.0, 1e-3)


@pytest.fixture
def own(monkeypatch, tmp_path):
    monkeypatch.setenv(user.VARIABLE, "")
    file = tmp_path / "mine.py"
    file.write_text(
        "IR = 'relay'\nraise SystemExit('run')\n"
        "def mine(program, rate='1'):\n    '''Does it.\n\n    At length.'''\n"
        "def _hidden(program): ...\ndef helper(other): ...\ndef two(program, more): ...\n"
    )
    with patch.dict(catalogue.CATALOGUE):
        yield file


def test_the_functions_of_a_file_are_passes_and_it_is_run_when_one_is_loaded(own):
    before = set(names("relay"))
    user.name_files([str(own)])
    assert set(names("relay")) - before == {"mine"}
    assert "mine" not in names("relax")
    entry = catalogue.info("relay", "mine")
    assert (entry.title, entry.summary, entry.origin) == ("mine", "Does it.", "mine.py")
    user.name_files([str(own)])  # twice is once
    assert os.environ[user.VARIABLE] == str(own)
    own.write_text("def mine(program, rate='1'):\n    return program + rate\n")
    user.name_files([str(own)])
    assert "mine" in names("relax")
    assert catalogue.info("relay", "mine").load()("p", rate="2") == "p2"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def cse(program): ...", "'cse'"),
        ("x = 1", "no pass"),
        ("def mine(program:", "not Python"),
        ("IR = 'onnx'\ndef mine(program): ...", "'onnx'"),
        (None, "cannot be opened"),
        ("", "no Python file"),  # of a folder
    ],
)
def test_a_file_that_has_no_passes_is_told_by_name(own, text, says):
    own.unlink()
    if text:
        own.write_text(text)
    elif text == "":
        own.mkdir()
    message = document("passes", "--pass-file", str(own), status=2)["error"]["message"]
    assert says in message and "mine.py" in message


def test_passes_of_a_file_are_listed_and_a_folder_stands_for_the_files_in_it(own, tmp_path):
    def listed(path):
        return {p["name"] for p in document("passes", "--pass-file", str(path))["passes"]}

    assert "mine" in listed(own)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "_shared.py").write_text("x = 1")
    (folder / "notes.txt").write_text("no Python")
    (folder / "own.py").write_text("def from_a_folder(program): ...")
    assert "from_a_folder" in listed(folder)


def test_the_page_offers_passes_of_a_file_and_tells_of_one_that_has_none(page, own, monkeypatch):
    monkeypatch.setenv(user.VARIABLE, str(own))
    settle(page.run())
    page.text_input(key="keep_pipeline_text").set_value("bind|mine")
    press(page, "use_pipeline")
    assert not page.error
    assert "bind|mine" in [c.value for c in page.code]
    own.write_text("x = 1")
    page.run()
    assert "has no pass" in page.error[0].value
    own.write_text("def mine(program): ...")
    settle(page.run())
    assert not page.error
