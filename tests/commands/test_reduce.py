"""Narrowing a fault inside a pass: the search by itself, on the command line, on the page."""

import ast
import io
import math
import random
import sys
import zipfile
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import faulty_session
from answers import ran
from command_line import document, run
from graphs import chain, graph_of
from page import press, settle
from relascope.core.errors import EngineError
from relascope.engine.faults import bundle, replay
from relascope.engine.jobs import bisect as bisection
from relascope.engine.jobs import reduce as reduction
from relascope.engine.jobs.accuracy import Tolerance
from relascope.engine.limits import Limits, Unit, Usage
from relascope.engine.protocol.fault import PieceResult, Report, Suspects
from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import Pipeline
from relascope.passes.search import reduce as pieces
from relascope.passes.search.bisect import Culprits, Verdict
from relascope.viz.rows import fault as reports

GOOD, BAD, DARK = Verdict


def random_graph(count, chance):
    read = {}
    for i in range(count):
        read[f"n{i}"] = [chance.choice(["x", *read][-6:]) for _ in range(chance.randint(1, 2))]
    ends = [n for n in read if not any(n in sources for sources in read.values())]
    text = "".join(f"; {n} . {' '.join(sources)}" for n, sources in read.items())
    return graph_of(f"x{text}", " ".join(ends))


class Oracle:
    def __init__(self, fault, dark=None):
        self.fault, self.dark, self.asked = set(fault), dark, []

    def __call__(self, piece):
        assert piece not in self.asked, "nothing is asked twice"
        assert piece.outputs
        assert set(piece.outputs) <= set(piece.nodes)
        self.asked.append(piece)
        if self.dark is not None and self.dark(piece):
            return pieces.PieceVerdict(DARK)
        return pieces.PieceVerdict(BAD if self.fault <= set(piece.nodes) else GOOD)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_local_fault_is_found_whole_and_alone_wherever_it_is(size):
    chance = random.Random(size)
    for _ in range(60):
        count = chance.randint(1, 120)
        one = random_graph(count, chance)
        place = chance.randrange(count)
        fault = {f"n{i}" for i in range(place, min(place + size, count))}
        oracle = Oracle(fault)
        found = pieces.reduce(one, oracle)
        assert set(found.piece.nodes) == fault
        assert found.minimal
        assert found.tries == len(oracle.asked) <= 2 * math.log2(count + 1) + 12


def test_a_hint_saves_tries():
    one = random_graph(400, random.Random(0))
    plain, hinted = Oracle({"n250"}), Oracle({"n250"})
    assert pieces.reduce(one, plain).piece == pieces.reduce(one, hinted, ["n249", "n250"]).piece
    assert len(hinted.asked) <= 4 < len(plain.asked)
    assert pieces.reduce(one, Oracle({"n250"}), ["n3"]).piece.nodes == ("n250",)


def test_an_output_that_is_wrong_leads_to_what_it_is_computed_of():
    one = graph_of("x; a . x; b . a; c . x; d . c", "b d")
    asked = []

    def judge(piece):
        asked.append(piece)
        bad = {"c", "d"} <= {*piece.nodes}
        return pieces.PieceVerdict(BAD, ("d",)) if bad else pieces.PieceVerdict(GOOD)

    assert pieces.reduce(one, judge).piece == pieces.Piece(("c", "d"), ("d",))
    assert asked[1] == pieces.Piece(("c", "d"), ("d",))


def test_two_places_far_apart_are_kept_and_the_rest_goes():
    one = chain(60)
    found = pieces.reduce(one, Oracle({"n4", "n51"}))
    assert set(found.piece.nodes) == {"n4", "n51"}
    assert len(found.piece.outputs) == len(pieces.read_values(one, found.piece)) == 2
    assert len(pieces.operators(one, found.piece)) == 2


def test_what_needs_the_whole_stays_whole_and_a_good_one_has_no_piece():
    one = chain(12)
    everything = pieces.whole(one)
    found = pieces.reduce(one, Oracle(everything.nodes))
    assert found.piece == everything and found.minimal
    for verdict in (GOOD, DARK):
        found = pieces.reduce(chain(8), lambda piece, verdict=verdict: pieces.PieceVerdict(verdict))
        assert (found.piece, found.tries, found.minimal) == (None, 1, False)


def test_the_tries_are_bounded_and_the_smallest_so_far_is_kept():
    oracle = Oracle({"n1", "n71", "n199"})
    found = pieces.reduce(chain(200), oracle, most=9)
    assert found.tries == len(oracle.asked) == 9 and not found.minimal
    assert oracle.fault <= set(found.piece.nodes)


def test_pieces_that_cannot_be_run_are_passed_over():
    found = pieces.reduce(chain(40), Oracle({"n21"}, dark=lambda piece: 1 < len(piece.nodes) < 5))
    assert "n21" in found.piece.nodes and len(found.piece.nodes) <= 5


def test_a_tuple_is_never_cut_off_from_what_reads_it():
    text = "x; a . x; b . a; t () a b; cat . t; s . cat :2 :2; i [0] s; j [1] s; end . i"
    one = graph_of(text, "end j")

    def judge(piece):
        inside = set(piece.nodes)
        assert ("t" in inside) == ("cat" in inside)
        assert len(inside & {"s", "i", "j"}) in (0, 3)
        assert not {"t", "s"} & set(piece.outputs)
        assert not {"t", "s"} & set(pieces.read_values(one, piece))
        return pieces.PieceVerdict(BAD if "i" in inside else GOOD)

    piece = pieces.reduce(one, judge).piece
    assert (set(piece.nodes), set(piece.outputs)) == ({"s", "i", "j"}, {"i", "j"})


def test_near_is_the_first_that_differs_and_what_has_no_counterpart_before_it():
    one = graph_of("x; a . x; b . a; c . b; d . c; e . d")
    assert pieces.near(one, {"x", "a"}, {"d", "e"}) == ("b", "c", "d")
    assert pieces.near(one, {"x", "a", "b", "c"}, {"d", "e"}) == ("d",)
    assert pieces.near(one, {"a"}, set()) == ()


def test_the_search_does_not_recurse_and_is_quick_on_a_deep_chain():
    assert pieces.reduce(chain(20_000), Oracle({"n9000"})).piece.nodes == ("n9000",)


def test_differences_are_relative_to_scale_nan_is_infinite_and_rounding_held_against_others():
    ones = np.ones(3)
    for one, other, size in (
        (2 * ones, 2 * ones + np.array([0, 0.5, 0]), 0.25),
        (ones, np.array([1, np.nan, 1]), math.inf),
        (np.array([np.nan]), np.array([np.nan]), 0),
        (ones, np.ones((3, 1)), math.inf),
        (0 * ones, 0.1 * ones, 0.1),
    ):
        assert replay.difference(one, other).max_rel == size
    assert replay.difference(np.zeros(0), np.zeros(0)).max_abs == 0
    large, nothing = np.full(3, 100.0), np.full(3, 1e-17)
    first, second = replay.differences([large, nothing], [large, -nothing], 0.0)
    assert (first.max_rel, second.max_rel) == (0.0, pytest.approx(2e-16))
    (alone,) = replay.differences([nothing], [-nothing], replay.floor_of([large]))
    assert alone.max_rel == pytest.approx(2e-16)
    assert replay.differences([nothing], [-nothing], 0.0)[0].max_rel == 2.0


def test_the_ratio_of_times_is_a_median_of_runs_in_turns(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(replay.time, "perf_counter", lambda: sum(clock))
    slow, slower = partial(clock.append, 0.1), partial(clock.append, 0.3)
    assert replay.ratio(slow, slower) == pytest.approx(3.0)


def test_a_report_brings_the_sources_that_it_imports_and_no_others(tmp_path):
    mine = tmp_path / "mine.py"
    rewriting = "from relascope.passes.relay.ir import rewrite"
    mine.write_text(f"{rewriting}\nfrom relascope.passes.relay.fold_constant import bind\n")
    modules = ["relascope.engine.faults.show", "relascope.passes.relay.builtin"]
    found = bundle.sources(modules, [mine])
    names = {n.removeprefix("relascope/") for n in found}
    assert {"__init__.py", "engine/faults/show.py", "engine/__init__.py"} <= names
    assert b"import" not in found["relascope/passes/catalogue/__init__.py"]
    assert {"passes/relay/ir/rewrite.py", "passes/relay/fold_constant.py"} <= names
    assert not [n for n in names if n.startswith(("viz/panels", "engine/relax", "tests"))]
    for content in found.values():
        ast.parse(content)
    # What it brings can be imported without the rest: all but the TVM's modules, here.
    for name, content in found.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import relascope.passes.program"
    code += ", relascope.engine.faults.show; print(relascope.__file__)"
    done = ran(sys.executable, "-I", "-c", code)
    assert done.stdout.startswith(str(tmp_path)), done.stderr


class Answers:
    def __init__(self, narrow, near=()):
        self.graph = graph_of("x; a . x; b op_b a; c . b; d . c")
        self._narrow, self._near, self.asked = narrow, near, []

    def __call__(self, method, source, where, *rest):
        self.asked.append((method, source, where, *rest))
        if method == "suspects":
            return Suspects(self.graph, self._near)
        if method == "report":
            return Report("t", "b", "a", {}, self.graph)
        return self._narrow(where, *rest)


def bisected(kind="wrong", pipeline="cse|fold|bind", suspects=(1,), double=None, **options):
    whole_ = Pipeline.parse(pipeline)
    question = bisection.Question(ModelSource("mlp", **options), whole_, "llvm -libs=mkl")
    one = bisection.Try(whole_, 2, kind, "output 0", 1.0, 0.5, 1e-5)
    return bisection.Bisection(question, kind, Culprits(suspects, whole_, None), (one,), double)


def narrowed(narrow, *about, **more):
    """What a search with these answers comes to, of a bisection that `bisected` has."""
    return reduction.narrow(Answers(narrow), "relay", bisected(*about, **more))


def wrong(where, piece, bare=False):
    bad = "b" in piece.nodes
    return PieceResult("wrong", piece.outputs, 1.0, 0.5) if bad else PieceResult("good")


def test_the_suspects_alone_are_asked_about_on_a_plain_target():
    made = narrowed(wrong)
    assert (made.piece.nodes, made.minimal, made.total) == (("b",), True, 4)
    assert (made.operators, made.report.title) == (("op_b",), "t")
    where = made.where
    assert (where.first, where.last, where.tail, where.target) == (1, 1, False, "llvm")
    assert where.limit == 1e-5
    said = reduction.verdict("relay", made)
    assert "the fault shows with 1 of the 4 nodes before it (op_b)" in said
    found = bisected()
    given = replace(found, question=replace(found.question, tolerance=Tolerance(0.5, 0.25)))
    where = reduction.narrow(Answers(wrong), "relay", given).where
    assert (where.limit, where.absolute) == (0.5, 0.25)


def test_what_is_wrong_in_float64_is_narrowed_in_float64():
    failed = SimpleNamespace(passed=False, failure=None, first_bad=None)
    made = narrowed(wrong, double=failed)
    assert (made.source.dtype, made.where.limit) == ("float64", 1e-10)
    rounded = SimpleNamespace(passed=True, failure=None)
    error = EngineError("usage", "It has no --dtype to choose.")
    for double in (rounded, SimpleNamespace(passed=False, failure=error)):
        assert narrowed(wrong, double=double).source == ModelSource("mlp")


def test_slow_is_half_way_to_what_the_whole_takes_but_no_more_than_a_factor():
    def took(bad, good):
        found = bisected("slow")
        parts = [Pipeline.parse("cse|fold|bind"), Pipeline.parse("cse|-fold|-bind")]
        log = [bisection.Try(p, 0, "", ratio=r) for p, r in zip(parts, (bad, good), strict=True)]
        return replace(found, culprits=Culprits((1,), *parts), log=tuple(log))

    def slow(*about):
        return PieceResult("slow", ratio=9.0)

    for bad, good, limit in ((9.0, 1.0, 1.5), (1.69, 1.0, 1.3), (1.02, 1.0, 1.1)):
        made = reduction.narrow(Answers(slow), "relay", took(bad, good))
        assert made.where.limit == pytest.approx(limit)


def failing(outcome, message, hint=""):
    return PieceResult(outcome, error=EngineError("pass", message, hint=hint))


def test_a_program_that_relascope_refuses_is_no_fault_of_the_pass():
    refused = failing("refused", "It is in train mode.", hint="Do this.")
    made = narrowed(lambda *about: refused, "crash")
    assert (made.piece, made.report, len(made.log)) == (None, None, 1)
    said = reduction.verdict("relay", made)
    assert "relascope refuses this program before it runs the pass" in said
    assert said.endswith("It is in train mode. Do this.")


@pytest.mark.parametrize(
    ("used", "crash"),
    [(Usage(4.0), "seconds"), (Usage(memory=200 << 20), "memory"), (None, "ends")],
)
def test_the_report_of_a_crossed_limit_gets_the_limit(used, crash):
    limits = Limits(3.0, 100.0)
    death = EngineError("engine", "The relay engine's process was ended by signal 11.")
    if used is not None:
        death = limits.crossed(Unit("A piece", "narrow", "engine", ""), used)

    def dies(where, piece, bare=False):
        raise death

    ask = Answers(dies)
    made = reduction.narrow(ask, "relay", bisected("crash"), limits=limits)
    assert made.shown.crash == crash
    account = next(asked[-1] for asked in ask.asked if asked[0] == "report")
    assert (account.shown.crash, account.seconds, account.memory) == (crash, 3.0, 100.0)


def test_where_it_shows_only_later_the_steps_behind_are_run_too():
    def later(where, piece, bare=False):
        return wrong(where, piece) if where.tail else PieceResult("good")

    made = narrowed(later)
    assert (made.where.tail, made.piece.nodes) == (True, ("b",))
    none = narrowed(later, suspects=(2,))
    assert (none.piece, none.report) == (None, None)
    assert "The fault cannot be narrowed inside bind" in reduction.verdict("relay", none)


def test_a_crash_must_stay_the_same_crash():
    def crash(where, piece, bare=False):
        size = len(piece.nodes)
        if "b" in piece.nodes and size > 1:
            return failing("crash", f"ValueError: no good after {size}")
        return failing("crash", "KeyError: 'something else entirely'")

    made = narrowed(crash, "crash")
    assert not made.where.building
    assert "b" in made.piece.nodes and len(made.piece.nodes) == 2
    assert "no good after 2" in reduction.verdict("relay", made)


@pytest.mark.parametrize(("building", "tail"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_crash_is_looked_for_in_the_pass_then_behind_it_then_in_what_is_built(building, tail):
    def crash(where, piece, bare=False):
        shows = where.building >= building and where.tail >= tail and "c" in piece.nodes
        return failing("crash", "No.") if shows else PieceResult("good")

    made = narrowed(crash, "crash")
    found = made.where.building, made.where.tail, made.piece.nodes
    assert found == (bool(building), bool(tail), ("c",))


def test_a_piece_that_ends_the_process_is_a_finding_and_one_that_cannot_run_is_none():
    death = EngineError("engine", "The relay engine's process was ended by signal 11.")
    asked = []

    def dies(where, piece, bare=False):
        if not where.building:
            return PieceResult("good")
        asked.append((piece.nodes, bare))
        # c ends it with and without the passes, unless b is there, too.
        if ("b" in piece.nodes and not bare) or piece.nodes == ("c",):
            raise death
        return PieceResult("good")

    made = narrowed(dies, "crash", "cse|fold")
    assert (made.where.building, made.piece.nodes) == (True, ("b",))
    assert made.shown.error.message == death.message
    assert all((nodes, True) in asked for nodes, bare in asked if not bare and "b" in nodes)


PIPELINE = "bind|fold|cse|fuse"


@pytest.fixture
def asked(connect, tmp_path):
    def ask(seed, *options, put=document, command="reduce", out="out", **more):
        given = [command, "mlp", "--seed", str(seed), "--out", str(tmp_path / out)]
        return put(*given, "--passes", PIPELINE, *options, connect=connect, **more)

    return ask


def test_the_command_line_narrows_and_writes_the_report(asked, tmp_path):
    data = asked(faulty_session.WRONG_FOLD)
    assert data["culprit"] == {"index": 1, "pass": "fold"}
    assert (data["nodes"], data["total"], data["operators"]) == (1, 4, ["nn.relu"])
    assert data["minimal"] and data["dtype"] == "float64" and data["shown"]["max_rel"] == 0.5
    assert {t["outcome"] for t in data["tries"]} == {"wrong"} and len(data["tries"]) <= 3
    assert data["verdict"].startswith("fold (FoldConstant): the fault shows with 1 of the 4 nodes")
    files = ["README.md", "lib/x.py", "report.html"]
    assert data["report"] == {"folder": str(tmp_path / "out"), "files": files}
    readme = (tmp_path / "out" / "README.md").read_text()
    assert readme.startswith("mlp float64 bind|fold|-cse|-fuse r\nrelascope reduce mlp --seed ")
    assert (tmp_path / "out" / "lib" / "x.py").exists()


def test_bisect_writes_the_report_of_the_whole_module_or_says_why_not(asked, tmp_path):
    bisect = partial(asked, command="bisect")
    data = bisect(faulty_session.WRONG_FOLD)
    assert data["report"]["files"] == ["README.md", "lib/x.py", "report.html"]
    whole, command = (tmp_path / "out" / "README.md").read_text().rstrip().split("\n")
    assert len(whole.split()) == 3 + 4  # all nodes of the module
    assert command.startswith("relascope bisect mlp --seed ")
    assert bisect(0, out="none")["report"] is None
    none = bisect(faulty_session.WHOLE_FOLD, out="no")["verdict"]
    assert "There is no report. The fault cannot be" in none
    assert not (tmp_path / "none").exists() and not (tmp_path / "no").exists()


def test_a_crash_a_slow_pass_and_one_that_ends_the_process_are_narrowed(asked):
    data = asked(faulty_session.RAISING_FOLD)
    assert (data["kind"], data["nodes"], data["after"]) == ("crash", 1, "")
    assert data["shown"]["error"]["message"] == "No good."
    data = asked(faulty_session.SLOW_FOLD, "--kind", "slow", "--factor", "2", out="slow")
    assert (data["kind"], data["shown"]["ratio"]) == ("slow", 3.0)
    data = asked(faulty_session.FATAL_CSE, out="ends")
    assert (data["culprit"]["pass"], data["nodes"]) == ("cse", 1)
    assert "exit status 3" in data["shown"]["error"]["message"]


def test_what_cannot_be_narrowed_or_written_says_so_and_leaves_no_folder(asked, tmp_path):
    data = asked(faulty_session.WHOLE_FOLD)
    assert (data["report"], data["nodes"], data["total"]) == (None, None, 4)
    assert "It needs the whole pipeline" in data["verdict"]
    assert not (tmp_path / "out").exists()
    assert "no fault to narrow" in asked(0)["verdict"]
    assert "The imported program" in asked(faulty_session.WRONG_IMPORT)["verdict"]
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    assert "new or empty" in asked(faulty_session.WRONG_FOLD, status=2)["error"]["message"]


def test_as_text_it_has_the_pieces_and_the_program(asked):
    text = asked(faulty_session.WRONG_FOLD, put=run).stdout
    says = "makes it wrong|nodes  results  outcome|before the pass|after the pass|It is wrong."
    assert all(part in text for part in (*says.split("|"), "run report.py there"))


def bisect(page, seed):
    settle(page.number_input(key="keep_seed").set_value(seed).run())
    return press(page, "bisect_button")


def shown(page):
    return [i.value for i in page.info if "the fault shows" in i.value]


def test_the_page_narrows_what_it_found_and_offers_the_report(page, monkeypatch):
    given, real = [], reports.zipped
    monkeypatch.setattr(reports, "zipped", lambda *about: given.append(real(*about)) or given[-1])
    bisect(page, faulty_session.WRONG_FOLD)
    press(page, "reduce_button")
    (said,) = shown(page)
    assert "1 of the 4 nodes" in said
    assert "before the pass" in {c.value for c in page.code}
    settle(page.segmented_control(key="reduce_side").set_value("after the pass").run())
    assert "after the pass" in {c.value for c in page.code}
    log = next(d.value for d in page.dataframe if "nodes" in d.value.columns)
    assert next(iter(log["outcome"])) == "wrong"
    with zipfile.ZipFile(io.BytesIO(given[-1])) as archive:
        assert "report_relay_fold/README.md" in archive.namelist()
        text = archive.read("report_relay_fold/README.md").decode()
    assert "float64" in text


def test_the_page_says_what_cannot_be_narrowed_asks_anew_of_another_pipeline_and_gives_up(page):
    bisect(page, 0)
    assert "reduce_button" not in {b.key for b in page.button}
    bisect(page, faulty_session.WHOLE_FOLD)
    press(page, "reduce_button")
    assert "cannot be narrowed" in page.warning[-1].value
    bisect(page, faulty_session.WRONG_FOLD)
    press(page, "reduce_button")
    assert shown(page)
    bisect(page, faulty_session.RAISING_FOLD)
    assert not shown(page)
    bisect(page, faulty_session.SLOW_NARROW)
    page.button(key="reduce_button").click()
    page.run()
    press(page, "cancel")
    assert page.session_state.reduce is None and not shown(page)
