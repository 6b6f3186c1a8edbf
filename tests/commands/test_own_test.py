"""A person's own test as the judge of `bisect` and `reduce`: exit status and arguments."""

import time
from pathlib import Path

import pytest

from answers import engine, refused
from command_line import document
from graphs import chain
from relascope.core.errors import EngineError
from relascope.engine.jobs import bisect as bisection
from relascope.engine.jobs import bulk
from relascope.engine.jobs import reduce as reduction
from relascope.engine.jobs.own_test import OwnTest
from relascope.engine.protocol.fault import ModuleFiles, Report, ScriptRun, Suspects
from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import Pipeline
from relascope.passes.search.bisect import IMPORT, Culprits


def script(folder, body):
    path = folder / "mine.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def module(text, name="module.py"):
    return ModuleFiles(name, text.encode(), b"values")


def run(path, seconds=60.0):
    return OwnTest.of(path, seconds).run(module("judged"), module("as imported", "before.py"))


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(0, "good"), (1, "bad"), (124, "bad"), (125, "cannot be run"), (126, "bad"), (127, "bad")],
)
def test_the_exit_status_is_the_verdict(tmp_path, status, verdict):
    done = run(script(tmp_path, f"echo one; echo two >&2; exit {status}"))
    assert (done.status, done.verdict, done.output) == (status, verdict, "one\ntwo\n")
    assert done.words == f"exit status {status} (two)"


def test_it_runs_in_a_new_folder_with_both_modules_and_the_end_of_its_output_is_kept(tmp_path):
    seen = tmp_path / "seen"
    body = f'pwd > {seen}; cat "$1" "$2" module.npz before.npz; ls; touch left; exit $#'
    done = run(script(tmp_path, body))
    assert done.status == 2 and done.output.startswith("judgedas importedvaluesvalues")
    listed = " ".join(done.output.split("values")[-1].split())
    assert listed == "before.npz before.py module.npz module.py"
    assert not Path(seen.read_text().strip()).exists()
    done = run(script(tmp_path, "seq 1 5000; exit 1"))
    assert (len(done.output), done.words) == (4000, "exit status 1 (5000)")


def test_a_run_over_its_limit_is_bad_and_stopped_with_what_it_started(tmp_path):
    beat = tmp_path / "beat"
    done = run(script(tmp_path, f"(while true; do date > {beat}; sleep 0.05; done) & wait"), 0.5)
    assert (done.status, done.verdict) == (None, "bad")
    assert done.words.startswith("a time-out after 0.5")
    beat.unlink()
    time.sleep(0.3)
    assert not beat.exists()


def test_what_cannot_judge_at_all_is_an_error(tmp_path):
    with refused("usage", "no such test file"):
        OwnTest.of(tmp_path / "none.sh")
    plain = tmp_path / "plain.sh"
    plain.write_text("exit 0")
    with refused("usage", "not executable", hint="chmod +x"):
        OwnTest.of(plain)
    plain.chmod(0o755)
    with refused("usage", "cannot be started"):
        run(plain)
    with refused("usage", "signal SIGKILL", hint="last words"):
        run(script(tmp_path, "echo last words; kill -9 $$"))
    with refused("usage", "exit status 139"):
        run(script(tmp_path, "exit 139"))


GRAPH = chain(6)


def answers(raising=()):
    """An engine without a TVM: a module's text is the names of its steps that are on, and of a
    piece its nodes, after the suspected passes with theirs in front."""

    def written(source, pipeline, *rest):
        on = [s.name for s in pipeline if s.enabled]
        if {*raising} & {*on}:
            raise EngineError("pass", "No good.", on[-1])
        return module(" ".join(on), "module.py" if len(pipeline) else "before.py")

    def written_piece(source, about, piece, *rest):
        nodes = " ".join(piece.nodes)
        names = " ".join(s.name for s in about.pipeline.steps[about.first : about.last + 1])
        return {"before": module(nodes, "before.py"), "module": module(f"{names} {nodes}")}

    def report(source, about, piece, account):
        return Report("t", "b", "", {"README.md": account.test.encode()}, GRAPH)

    suspects = Suspects(GRAPH, ())
    return engine(written=written, written_piece=written_piece, report=report, suspects=suspects)


def question(test, pipeline="cse|fold|bind", **options):
    source = ModelSource("mlp")
    return bisection.Question(source, Pipeline.parse(pipeline), "llvm", "bad", test=test, **options)


def search(path, pipeline="cse|fold|bind", ask=None, **options):
    asked = question(OwnTest.of(path), pipeline, **options)
    return bisection.bisect(ask or answers(), "relay", asked)


def test_bisection_asks_the_test_about_the_module_after_each_try(tmp_path):
    found = search(script(tmp_path, 'grep -q fold "$1" && exit 7\ntest -s "$2" && exit 1\nexit 0'))
    assert (found.kind, found.culprits.suspects) == ("bad", (1,))
    assert {t.outcome: t.test.status for t in found.log} == {"bad": 7, "good": 0}
    said = bisection.verdict("relay", found)
    assert said.startswith("Step 2, fold (FoldConstant), makes the test fail: exit status 7.")
    assert said.endswith("Without it: exit status 0.")


def test_a_test_that_is_good_finds_nothing_and_the_import_can_be_bad(tmp_path):
    asked = answers()
    found = search(script(tmp_path, "exit 0"), ask=asked)
    assert (found.kind, found.compiles, set(asked.asked)) == ("", 1, {"written"})
    assert "the test passes after the whole pipeline" in bisection.verdict("relay", found)
    assert search(script(tmp_path, "exit 1")).culprits.suspects == (IMPORT,)


def test_a_table_of_many_models_asks_it_too(tmp_path):
    written, source = answers(), ModelSource("mlp")

    def ask(method, *given):
        return () if method in ("load", "applications") else written(method, *given)

    def outcome(body, text="cse|fold", whole=True):
        about = "relay", "mlp", source, text, Pipeline.parse(text), "llvm"
        test = OwnTest.of(script(tmp_path, body))
        row = bulk.run_task(ask, bulk.Task(*about, test=test, search=whole))
        return row["outcome"], row["culprits"], row["verdict"]

    blamed = outcome('grep -q fold "$1" && exit 7\nexit 0')
    assert blamed[:2] == ("bad", ["fold"]) and "makes the test fail: exit status 7" in blamed[2]
    assert outcome("exit 7", whole=False) == ("bad", [], "exit status 7")
    assert outcome("exit 0")[0] == "right"
    assert outcome("exit 125")[0] == "cannot be run"


def test_what_cannot_be_judged_or_written_is_passed_over_and_a_killed_test_ends_it(tmp_path):
    path = script(tmp_path, 'grep -q bind "$1" && exit 1\ngrep -q fold "$1" && exit 125\nexit 0')
    found = search(path)
    assert found.culprits.suspects == (1, 2)
    with pytest.raises(EngineError, match="cannot judge the module: exit status 125"):
        search(script(tmp_path, "exit 125"))
    found = search(script(tmp_path, 'grep -q dce "$1"; test $? = 1'), "cse|fold|dce")
    assert found.culprits.suspects == (2,)
    with pytest.raises(EngineError, match="No good"):
        search(path, ask=answers(["bind"]))
    with pytest.raises(EngineError, match="SIGKILL"):
        search(script(tmp_path, "kill -9 $$"))


def test_one_bad_run_of_several_is_bad(tmp_path):
    count = tmp_path / "count"
    body = f'echo x >> {count}; grep -q fold "$1" || exit 0; test $(($(wc -l < {count}) % 3)) != 0'
    found = search(script(tmp_path, body), "cse|fold", runs=3)
    about = found.kind, found.culprits.suspects, found.log[0].runs, found.log[0].bad
    assert about == ("bad", (1,), 3, 1)
    assert "in 1 of 3 runs" in bisection.verdict("relay", found)


THIRD = 'grep -q n3 "$1" && exit 1\nexit 0'
TRIED = (bisection.Try(Pipeline.parse("cse|fold"), 1, "bad", test=ScriptRun(1, 0.1)),)


@pytest.fixture
def narrowed(tmp_path):
    def run(body, suspects, bad, good=None, ask=None):
        ask, test = ask or answers(), OwnTest.of(script(tmp_path, body))
        parts = (Pipeline.parse(bad), None if good is None else Pipeline.parse(good))
        found = bisection.Bisection(question(test), "bad", Culprits(suspects, *parts), TRIED)
        return ask, reduction.narrow(ask, "relay", found)

    return run


def test_reduction_keeps_what_is_bad_after_the_pass_and_good_before_it(narrowed, tmp_path):
    # Without the second node the piece is bad before the pass as well.
    body = 'grep -q n2 "$1" || exit 1\ngrep -q fold "$1" && grep -q n3 "$1" && exit 1\nexit 0'
    ask, made = narrowed(body, (1,), "cse|fold", "cse|-fold")
    assert made.piece.nodes == ("n2", "n3")
    assert "bad before" in {t.shown.outcome for t in made.log}
    assert (made.shown.outcome, made.shown.test.status) == ("bad", 1)
    said = reduction.verdict("relay", made)
    assert said.startswith("fold (FoldConstant): the fault shows with 2 of the 5 nodes before it")
    assert said.partition("): ")[2].endswith(f"exit status 1. {len(made.log)} tries.")
    assert made.report.files["README.md"] == b"test.sh"
    assert made.report.files["test.sh"] == (tmp_path / "mine.sh").read_bytes()
    assert "narrow" not in ask.asked


def test_what_is_not_known_to_be_good_before_is_reduced_without_asking_of_it(narrowed):
    _, made = narrowed(THIRD, (IMPORT,), "")
    assert made.piece.nodes == ("n3",)
    said = reduction.verdict("relay", made)
    assert said.startswith("The imported program: the fault shows with 1 of the 5 nodes (")
    _, made = narrowed(THIRD, (0, 1), "cse|fold")
    assert made.piece.nodes == ("n3",)


def test_a_program_whose_run_ends_the_process_is_reduced_on_random_values(narrowed):
    plain, buildings = answers(), []

    def ask(method, source, about, *rest):
        if method == "suspects":
            buildings.append(about.building)
            if about.building:
                raise EngineError("engine", "The relax engine's process was ended by signal 11.")
        return plain(method, source, about, *rest)

    _, made = narrowed(THIRD, (IMPORT,), "", ask=ask)
    assert (made.piece.nodes, made.where.building) == (("n3",), False)
    assert set(buildings) == {True, False}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["bisect", "--test", "none.sh"], "no such test file"),
        (["bisect", "--test", "mine.sh", "--kind", "wrong"], "alone decides"),
        (["bulk", "--test", "mine.sh", "--slow"], "alone decides"),
        (["pipelines", "--test", "mine.sh", "--rtol", "0.1"], "alone decides"),
    ],
)
def test_the_command_line_refuses_what_does_not_fit(options, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script(tmp_path, "exit 0")
    error = document(options[0], "mlp", *options[1:], status=2)["error"]
    assert says in error["message"]
