"""The search for the pass that breaks a pipeline, without an engine."""

import math
import random

import pytest

from passes import catalogue
from passes.bisect import IMPORT, Found, Verdict, half_way, kept_on, search
from passes.catalogue import PassInfo, default_pipeline, names
from passes.pipeline import Pipeline, Step

GOOD, BAD, DARK = Verdict


class Oracle:
    """Judges a pipeline whose steps are named after their places: "p0", "p1", …

    Args:
        culprit: a place, or IMPORT, from which on it is bad; None: it never is.
        needs: place of a step to those without which it fails, unknown to the search.
    """

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


@pytest.mark.parametrize("count", range(1, 35))
def test_every_culprit_is_found_within_the_bound(count):
    for culprit in (*range(count), IMPORT):
        oracle = Oracle(culprit)
        found = search(steps(count), oracle)
        assert found.suspects == (culprit,)
        assert len(oracle.asked) <= most(count)


def test_the_boundary_is_proved():
    oracle = Oracle(5)
    found = search(steps(9), oracle)
    assert [s.enabled for s in found.bad] == [True] * 6 + [False] * 3
    assert [s.enabled for s in found.good] == [True] * 5 + [False] * 4
    assert {found.bad, found.good} <= set(oracle.asked)


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
        found = search(steps(count, off), oracle, kept)
        assert found.suspects == (culprit,)
        assert len(oracle.asked) <= most(len(on))
        for asked in oracle.asked:
            switched = {i for i, s in enumerate(asked) if s.enabled}
            assert not switched & off
            # Required steps go only where they are bad by themselves, and then from the end.
            assert kept & set(range(len(asked))) <= switched


def test_nothing_wrong_takes_one_look():
    oracle = Oracle(None)
    assert search(steps(8), oracle) == Found(())
    assert len(oracle.asked) == 1


@pytest.mark.parametrize("pipeline", [Pipeline(), steps(3, off={0, 1, 2})])
def test_without_a_pass_only_the_import_can_be_wrong(pipeline):
    found = search(pipeline, Oracle(IMPORT))
    assert found.suspects == (IMPORT,)
    assert search(pipeline, Oracle(None)).suspects == ()


def test_a_whole_that_cannot_be_run_has_no_culprit():
    assert search(steps(4), lambda pipeline: DARK) == Found(())


def test_what_cannot_be_run_is_passed_over():
    # p3 and p5 work only with p6: all that ends at p3, p4 or p5 cannot be run.
    needs = {3: {6}, 5: {6}}
    for culprit in range(12):
        oracle = Oracle(culprit, needs)
        found = search(steps(12), oracle)
        expected = (3, 4, 5, 6) if 3 <= culprit <= 6 else (culprit,)
        assert found.suspects == expected
        dark = sum(Oracle(culprit, needs)(p) is DARK for p in oracle.asked)
        assert len(oracle.asked) - dark <= most(12)


def test_an_optional_pass_that_a_required_one_needs_unknown_to_the_catalogue():
    # p7 is required and fails without p2: nothing runs that ends before p2.
    for culprit in (3, 4, 5, 6):
        oracle = Oracle(culprit, {7: {2}})
        assert search(steps(8), oracle, {7}).suspects == (culprit,)
    for culprit in (0, 1, 2):  # nothing good was ever seen, and that is said
        found = search(steps(8), Oracle(culprit, {7: {2}}), {7})
        assert found.suspects == (IMPORT, 0, 1, 2)
        assert found.good is None


def test_some_steps_fail_without_others_at_random():
    chance = random.Random(1)
    for _ in range(400):
        count = chance.randint(2, 20)
        needs = {
            i: {chance.randrange(count)} for i in range(count) if chance.random() < 0.15
        }  # fmt: skip
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
    assert kept_on("relay", Pipeline.parse("a|c|b|c|r|a")) == {0, 2, 4}
    assert kept_on("relay", Pipeline.parse("a|b|-b|c")) == frozenset()
    assert kept_on("relay", Pipeline.parse("a|b|a|b|r")) == {2, 3, 4}
    assert kept_on("relay", Pipeline.parse("c|-r|c")) == frozenset()


@pytest.mark.parametrize("ir", ["relay", "relax"])
def test_the_way_to_the_gradient_is_kept_and_its_middle_is_no_place_to_look(ir):
    pipeline = default_pipeline(ir, True)
    kept = [s.name for i, s in enumerate(pipeline) if i in kept_on(ir, pipeline)]
    assert {"decompose_layer_norm", "root_grad_out", "gradient"} <= set(kept)
    assert not {"cse", "dce", "drop_zeros"} & set(kept)
    assert "cse" in names(ir)
    places = [s.name for s in pipeline]

    def ends_at(name):
        return half_way(ir, pipeline, pipeline.upto(places.index(name)))

    assert ends_at("root_grad_out")
    assert not ends_at("decompose_layer_norm")
    assert not ends_at("cse")
    assert ends_at("gradient") == (ir == "relay")  # whose let bindings become a graph after it
    assert not half_way(ir, pipeline, pipeline)
