"""A file in the sidebar and in the tab of the graph: its inputs, and what the import did."""

from dataclasses import replace
from types import SimpleNamespace

from streamlit.testing.v1 import AppTest

from page import words
from page_session import forward_graph
from relascope.engine.protocol.results import ImportChange, ModelInfo
from relascope.engine.protocol.source import ModelSource
from relascope.viz.drawing.drawing import focus_on
from relascope.viz.panels import graph as imported


def script():
    import streamlit as st

    from relascope.engine.protocol.results import ModelInputs, OpenSize
    from relascope.engine.protocol.source import ModelSource, parse_pins
    from relascope.viz.panels.shell import sidebar

    class Cache:
        def ask(self, method, source, patience):
            batch = dict(source.pins).get("n", 2)
            size = OpenSize("n", 2, 1, 64, ("x.0",))
            return ModelInputs((f"x={batch}x4:float32",), ("drawn from a normal",), (size,))

    source = ModelSource("model.pt2", pins=parse_pins(st.session_state.setdefault("keep_pins", "")))
    st.session_state.setdefault("keep_inputs", "")
    sidebar._guessed(Cache(), source)


def test_a_size_that_is_left_open_can_be_set_and_inputs_edited():
    page = AppTest.from_function(script).run()
    assert "`x=2x4:float32`: drawn from a normal" in words(page)
    (size,) = page.number_input
    assert (size.label, size.value) == ("x.0: 1 to 64", 2)
    size.set_value(7).run()
    assert page.session_state.keep_pins == "n=7"
    assert "x=7x4:float32" in words(page)
    page.number_input[0].set_value(2).run()
    assert page.session_state.keep_pins == "", "the example's own is not said"
    page.button(key="edit_inputs").click().run()
    assert page.session_state.keep_inputs == "x=2x4:float32"
    assert not page.button


def test_a_row_of_the_import_shows_its_nodes_or_their_module(monkeypatch):
    graph, chosen = forward_graph(), []
    gone = ImportChange("dropped", "Left out", "aten::detach", 1, (), ("layers.1.inner.part",))
    nowhere = replace(gone, modules=("other",))
    composed = ImportChange("changed", "Written with others", "aten::gelu", 1, ("r", "d1"))
    source = ModelSource("mlp")
    info = ModelInfo(source, graph, 0, (), 1, 0.0, changes=(gone, nowhere, composed))
    screen = SimpleNamespace(ir="relay", label="mlp", source=source, training=False)
    monkeypatch.setattr(imported, "picked", lambda key, count: chosen[-1])
    for row, focus in ((None, None), (0, focus_on("layers.1")), (1, None), (2, "r")):
        chosen.append(row)
        assert imported.marked(screen, info).get("focus") == focus
    shown = imported.marked(screen, info)
    assert shown["highlight"] == {"r": "changed", "d1": "changed"}
    assert shown["notes"]["d1"] == "Written with others"
