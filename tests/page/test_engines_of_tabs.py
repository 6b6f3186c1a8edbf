"""Engines end when their tabs do, and one process stands by while anybody is there."""

import pytest

from relascope.engine.limits import of_page
from relascope.engine.places import PLACES
from relascope.viz.panels.shell import spare


class Client:
    """What a tab's engine is told."""

    idle = 0.0
    limits = of_page()

    def __init__(self, ir):
        self.rests = []

    def rest(self, busy=False):
        self.rests.append(busy)

    def limit(self, limits):
        pass

    def submit(self, method, *args):
        pass

    def warm(self):
        pass

    def close(self):
        pass


class Clock:
    """Time that passes when a test says so."""

    now = 1000.0

    def monotonic(self):
        return self.now


class Standby:
    """What stands by."""

    kept = ended = 0
    ir = ""

    def keep(self, ir, *calls):
        self.kept, self.ir = self.kept + 1, ir

    def is_of(self, ir):
        return self.ir == ir

    def end(self):
        self.ended, self.ir = self.ended + 1, ""


@pytest.fixture
def engines(monkeypatch):
    monkeypatch.setattr(spare, "EngineClient", Client)
    monkeypatch.setattr(spare, "STANDBY", Standby())
    monkeypatch.setattr(spare, "time", Clock())
    monkeypatch.setattr(spare, "_look_after", lambda engines: None)
    monkeypatch.setattr(spare, "most_of_page", lambda: 3)
    monkeypatch.setattr(PLACES, "most", 0)
    here = {"a", "b"}
    monkeypatch.setattr(spare, "_connected", here.__contains__)
    engines = spare.Engines()
    engines.here, engines.clock = here, spare.time
    return engines


def test_the_engine_of_a_closed_tab_ends_and_those_of_others_go_on(engines):
    first, second = engines.take("relax", None, "a"), engines.take("relax", None, "b")
    engines.here.discard("a")
    engines.look()
    assert first.client.rests == [], "it may be a reload"
    engines.clock.now += 30
    engines.look()
    assert first.client.rests == [True]
    assert second.client.rests == []


def test_the_engine_of_an_idle_tab_rests(engines):
    cache = engines.take("relax", None, "a")
    cache.client.idle = 61.0
    engines.look()
    assert cache.client.rests == [False]


def test_one_stands_by_while_anybody_is_there(engines):
    cache = engines.take("relax", None, "a")
    standby = spare.STANDBY
    engines.look()
    assert standby.kept == 0, "the first model has the cores"
    engines.clock.now += spare.REFILL_AFTER + 1
    engines.look()
    engines.look()
    assert (standby.kept, standby.ir) == (1, "relax")
    other = engines.take("relay", None, "a")
    engines.clock.now += spare.REFILL_AFTER + 1
    engines.look()
    assert (standby.kept, standby.ir) == (2, "relay")
    engines.here.clear()
    engines.clock.now += 60
    engines.look()
    assert standby.ir == ""
    assert cache.client.rests == other.client.rests == [True]
