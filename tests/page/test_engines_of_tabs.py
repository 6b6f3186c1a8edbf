"""Engines end when their tabs do, and rest while nobody asks them anything."""

from functools import partial
from unittest.mock import Mock, call, create_autospec

import pytest

from relascope.engine.limits import of_page
from relascope.engine.places import PLACES
from relascope.viz.panels.shell import tab_engines


@pytest.fixture
def engines(monkeypatch):
    client = {"idle": 0.0, "limits": of_page()}
    make = partial(create_autospec, tab_engines.EngineClient, instance=True, **client)
    monkeypatch.setattr(tab_engines, "EngineClient", lambda ir: make())
    monkeypatch.setattr(tab_engines, "time", Mock(**{"monotonic.return_value": 1000.0}))
    monkeypatch.setattr(tab_engines, "_look_after", lambda engines: None)
    monkeypatch.setattr(tab_engines, "most_of_page", lambda: 3)
    monkeypatch.setattr(PLACES, "most", 0)
    here = {"a", "b"}
    monkeypatch.setattr(tab_engines, "_connected", here.__contains__)
    engines = tab_engines.Engines()
    engines.here, engines.now = here, tab_engines.time.monotonic
    return engines


def test_the_engine_of_a_closed_tab_ends_and_that_of_an_idle_one_rests(engines):
    first, second = engines.take("relax", None, "a"), engines.take("relax", None, "b")
    engines.here.discard("a")
    engines.look()
    assert not first.client.rest.called, "it may be a reload"
    engines.now.return_value += 30
    engines.look()
    assert first.client.rest.mock_calls == [call(busy=True)]
    assert not second.client.rest.called
    second.client.idle = 61.0
    engines.look()
    assert second.client.rest.mock_calls == [call()]
