"""Engines end when their tabs do, and rest while nobody asks them anything."""

import pytest

from relascope.engine.limits import of_page
from relascope.engine.places import PLACES
from relascope.viz.panels.shell import tab_engines


class Client:
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
    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def engines(monkeypatch):
    monkeypatch.setattr(tab_engines, "EngineClient", Client)
    monkeypatch.setattr(tab_engines, "time", Clock())
    monkeypatch.setattr(tab_engines, "_look_after", lambda engines: None)
    monkeypatch.setattr(tab_engines, "most_of_page", lambda: 3)
    monkeypatch.setattr(PLACES, "most", 0)
    here = {"a", "b"}
    monkeypatch.setattr(tab_engines, "_connected", here.__contains__)
    engines = tab_engines.Engines()
    engines.here, engines.clock = here, tab_engines.time
    return engines


def test_the_engine_of_a_closed_tab_ends_and_that_of_an_idle_one_rests(engines):
    first, second = engines.take("relax", None, "a"), engines.take("relax", None, "b")
    engines.here.discard("a")
    engines.look()
    assert first.client.rests == [], "it may be a reload"
    engines.clock.now += 30
    engines.look()
    assert first.client.rests == [True]
    assert second.client.rests == []
    cache = second
    cache.client.idle = 61.0
    engines.look()
    assert cache.client.rests == [False]
