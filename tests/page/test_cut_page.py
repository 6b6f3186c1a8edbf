"""The tab "Gradient & cut" beyond its strategies: the frontier, by hand, and the reasons."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

import page_session
from joints import chain
from page import open_tab, press, says, settle, table_with, training, words
from relascope.engine.jobs.cut import measured_peaks
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.times import TorchCut, TorchSaved
from relascope.passes.cuts.cut import Joint, cut
from relascope.viz.charts import charts
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.panels import presenting
from relascope.viz.panels.cut import captures
from relascope.viz.panels.cut import tab as cut_tab
from relascope.viz.panels.shell import cut_choice
from relascope.viz.rows import columns, tables


class Cards:
    def __init__(self, monkeypatch) -> None:
        self.pressed = self.row = self.card = self.act = self.pick = None
        draw, controls, table = cut_tab.graph_view, cut_choice.controls, captures.grid

        def drawn(graph, view, **more):
            self.card, self.act = view.card, view.act
            return draw(graph, view, **more)

        def begun(screen):
            if self.pressed is not None:  # as the browser's message would have it
                self.act(*self.pressed)
                self.pressed = None
            if self.row is not None:
                self.pick(self.row)
                self.row = None
            controls(screen)

        def listed(rows, *, key, on_pick, **more):
            self.pick = on_pick if key == "captures_table" else self.pick
            return table(rows, key=key, on_pick=on_pick, **more)

        monkeypatch.setattr(cut_tab, "graph_view", drawn)
        monkeypatch.setattr(cut_choice, "controls", begun)
        monkeypatch.setattr(captures, "grid", listed)

    @property
    def text(self):
        return " ".join(self.card.lines)

    @property
    def able(self):
        return {name: able for name, _, able in self.card.actions}

    def press(self, page, action):
        assert self.able[action]
        self.pressed = self.card.node, action
        return settle(page.run())


@pytest.fixture
def cards(monkeypatch):
    return Cards(monkeypatch)


@pytest.fixture
def gradient(page, cards):
    training(page)
    return open_tab(page, "Gradient & cut")


def select(page, node_id):
    page.session_state["joint_view"] = {"selected": node_id}
    return settle(page.run())


def strategy(page, name):
    return settle(page.selectbox(key="keep_strategy").set_value(name).run())


def test_the_minimum_cut_is_first_and_others_are_chosen_priced_and_measured(gradient):
    assert gradient.selectbox(key="keep_strategy").value == "min_cut"
    assert gradient.toggle(key="keep_offload").disabled  # in Relay
    assert "of its estimated time" in words(gradient)
    gradient.segmented_control(key="keep_prices").set_value("measured")
    assert "of its measured time" in words(settle(gradient.run()))
    gradient.segmented_control(key="keep_prices").set_value("estimated")
    settle(gradient.multiselect(key="keep_points").set_value(["chosen", "inputs_only"]).run())
    press(gradient, "measure")
    table = table_with(gradient, "work again, measured")
    assert list(table["captures"]) == [2, 0]
    assert list(table["times eager"]) == [1.32, 1.32]
    assert list(table["work again, measured"]) == [0, 0]
    assert table["work again, estimated"][0] < table["work again, estimated"][1]
    settle(gradient.multiselect(key="keep_points").set_value(["keep_all"]).run())
    press(gradient, "measure")  # joins what was measured before
    assert len(table_with(gradient, "work again, measured")) >= 2
    # The slider goes from cut to cut along the frontier.
    gradient.session_state["keep_frontier"] = 1_000_000  # chosen for another model
    strategy(gradient, "frontier")
    assert gradient.session_state["keep_frontier"] == 2048
    none, *_, everything = gradient.select_slider(key="keep_frontier").options
    assert none.startswith("0 B") and everything == "2.0 KiB, +0.0 % time"
    for held, count in ((2048, 2), (0, 0)):
        gradient.select_slider(key="keep_frontier").set_value(held)
        says(settle(gradient.run()), f"<b>{count}</b> captures")
    open_tab(gradient, "In your code")
    assert any("--strategy frontier --budget 0" in c.value for c in gradient.code)
    assert 'inputs, captures="frontier", budget=0)' in gradient.code[0].value
    gradient.sidebar.number_input(key="keep_seed").set_value(page_session.NO_PARTITION_SEED)
    open_tab(gradient, "Gradient & cut")
    assert "cannot handle this module" in words(gradient)


def test_the_chart_has_the_peak_of_a_step_what_was_measured_and_pytorchs_whole_range(
    gradient, monkeypatch
):
    drawn = []
    draw = charts.frontier
    monkeypatch.setattr(charts, "frontier", lambda *a, **k: drawn.append(a) or draw(*a, **k))
    settle(gradient.run())
    document, rivals, _, field = drawn[-1]
    assert field == "bytes" and len(rivals["pytorch_cuts"]) == 2 and not document["measured"]
    assert "draws masks anew" not in words(gradient)
    gradient.toggle(key="keep_torch_range").set_value(True)
    gradient.segmented_control(key="keep_cut_axis").set_value("Peak of a step")
    settle(gradient.run())
    press(gradient, "measure")
    document, rivals, _, field = drawn[-1]
    assert field == "peak_bytes" and len(rivals["pytorch_cuts"]) == 11
    assert all(p["peak_bytes"] for p in (*document["frontier"], *document["strategies"]))
    assert document["measured"] and not gradient.exception
    taken = {s["strategy"]: s.get("measured_peak_bytes") for s in document["strategies"]}
    assert taken["min_cut"] == taken["keep_all"] == 4096 and taken["inputs_only"] is None
    spec = charts.frontier(*drawn[-1]).to_dict()
    points = (r for data in spec["datasets"].values() for r in data)
    peaks = [r["peak"] for r in points if "chosen" in r.get("what", "")]
    assert peaks and all(text.endswith("estimated, 4.0 KiB measured") for text in peaks)
    assert "Within 0.4, 0.3, 0.2, 0.1, 0 PyTorch" in words(gradient)


def test_a_measured_peak_stays_beside_the_estimate_wherever_the_cut_is(gradient, monkeypatch):
    shows, files = [], []
    made = presenting.show_document
    monkeypatch.setattr(presenting, "show_document", lambda *a: shows.append(made(*a)) or shows[-1])
    monkeypatch.setattr(cut_tab.handing_on, "button", lambda *a: files.append(a[3]))
    gradient.session_state["show_asked"] = True
    missing, measured = "estimated, not measured", "estimated, 4.0 KiB measured"
    for name, said in {"inputs_only": missing, "measure_it": measured}.items():
        (press if name == "measure_it" else strategy)(gradient, name)
        says(gradient, said)
        assert shows[-1]["cuts"][shows[-1]["chosen"]]["step"].endswith(said)
    assert "measure_it" not in {b.key for b in gradient.button}
    file = Sheet("cut", {})
    files[-1](file)
    assert measured in str(file.tabs)
    for name, said in {"recompute_pointwise": missing, "inputs_only": measured}.items():
        says(strategy(gradient, name), said)


def test_a_measured_peak_is_of_the_same_program_and_target():
    request = BuildRequest("source", "pipeline", "cpu", 1, 30)
    row = SimpleNamespace(ratio_to_eager=1.0, phase="forward_backward", peak_bytes=7)
    others = [replace(request, target="cuda"), replace(request, threads=2, repeats=3)]
    asked = [r.split_at(ids) for r, ids in zip((*others, request), "abc", strict=True)]
    asked.append(replace(request, repeats=3).split_at("d"))
    timings = [(of, SimpleNamespace(rows=[row])) for of in (*asked, request)]  # the last is whole
    assert measured_peaks(request, timings) == {("c",): 7, ("d",): 7}


def test_a_tensor_is_forced_by_hand_and_let_go_as_far_as_that_can_be(gradient, cards):
    says(strategy(gradient, "min_cut"), "Click a tensor")
    assert cards.card is None
    select(gradient, "r")
    assert cards.text.startswith("Saved:")
    says(cards.press(gradient, "recompute"), "<b>1</b> captures")
    assert "Forced by hand" in cards.text
    assert list(gradient.dataframe[0].value["name"]) == ["nn.dense"]
    assert gradient.dataframe[1].value["why"][0].startswith("by hand")
    assert cards.able == {"save": True, "recompute": False}
    says(open_tab(gradient, "In your code"), "Choices by hand, offloading")
    assert any("--recompute r" in c.value for c in gradient.code)
    open_tab(gradient, "Gradient & cut")
    says(press(gradient, "undo_r"), "<b>2</b> captures")
    assert "undo_r" not in {b.key for b in gradient.button}
    select(gradient, "r")
    says(cards.press(gradient, "save"), "To save r changes nothing. The strategy saves it")
    press(gradient, "undo_r")
    # A wish that cannot be met is told, and can be taken back.
    select(gradient, "d0")
    cards.press(gradient, "save")
    strategy(gradient, "budget")
    settle(gradient.slider(key="keep_budget").set_value(0).run())
    assert "no cut keeps less than" in gradient.error[0].value
    press(gradient, "undo_d0")
    assert not gradient.error
    # It waits where there is no choice, and belongs to one model.
    strategy(gradient, "min_cut")
    select(gradient, "d0")
    cards.press(gradient, "recompute")
    says(strategy(gradient, "keep_all"), "choices by hand have no effect now", "<b>2</b> captures")
    assert cards.able == {"save": False, "recompute": False}
    assert "leaves no choice" in cards.text
    settle(gradient.sidebar.number_input(key="keep_seed").set_value(4).run())
    assert "undo_d0" not in {b.key for b in gradient.button}


def test_equal_layers_are_forced_at_once_and_taken_apart(gradient, cards, monkeypatch):
    monkeypatch.setattr(Joint, "alike", dict.fromkeys(("d0", "r"), ("d0", "r")))
    select(gradient, "d0")
    assert "in 2 equal layers" in cards.text
    says(cards.press(gradient, "recompute_all"), "<b>0</b> captures")
    assert gradient.button(key="undo_d0").label.endswith("computed again × 2 ✕")
    cards.press(gradient, "save")
    assert gradient.button(key="undo_r").label.endswith("computed again ✕")
    cards.press(gradient, "save_all")
    press(gradient, "undo_d0")
    assert not {"undo_d0", "undo_r"} & {b.key for b in gradient.button}


def test_a_selected_node_chooses_its_row_and_a_row_its_node(gradient, cards):
    def rows():
        return list(gradient.session_state["captures_table"]["selection"]["rows"])

    words_of = {"r": "", "d0": "", "gd": "backward computes it", "x": "receives it"}
    for (node_id, word), row in zip(words_of.items(), ([1], [0], [], []), strict=True):
        select(gradient, node_id)
        assert rows() == row and cards.card.node == node_id
        assert word in cards.text and (not word or cards.able == {})
    cards.row = 1
    settle(gradient.run())
    assert cards.card.node == "r" and rows() == [1]
    select(gradient, "d0")  # the row goes with the graph's selection again
    assert cards.card.node == "d0" and rows() == [0]


def clicked():
    from relascope.viz.panels.cut.frontier import _clicked

    _clicked("a_chart")


def test_a_point_of_the_chart_chooses_its_cut_or_its_strategy():
    page = AppTest.from_function(clicked)
    for strategy, held in (("", 32), ("keep_all", None)):
        told = [{"strategy": strategy, "bytes": held or 384}]
        page.session_state["a_chart"] = {"selection": {charts.CLICKED: told}}
        assert not page.run().exception
        assert page.session_state["keep_strategy"] == (strategy or "frontier")
        assert page.session_state["keep_frontier"] == 32


def test_the_chosen_tensor_lights_up_what_hangs_on_it():
    found = cut(chain(), "min_cut", save=["b"], recompute=["c"])
    assert captures.highlight(found, None) == {"c": "again"}
    assert captures.highlight(found, "b") == {"a": "instead", "c": "need", "db": "need"}
    assert captures.highlight(found, "c") == {"dc": "need"}
    assert captures.highlight(found, "x") == {"c": "again"}


def test_the_frontiers_chart_has_every_point_and_the_rivals():
    found = cut(chain(), "min_cut")
    document = tables.frontier_document(found.joint)
    here = {"what": "chosen: Minimum cut", "bytes": found.bytes, "net_share": found.net_share}
    here["peak_bytes"] = found.peak_bytes

    def drawn(cuts=None, field="bytes"):
        rivals = None if cuts is None else tables.torch_saved_document(TorchSaved(512, tuple(cuts)))
        spec = charts.frontier(document, rivals, here, field).to_dict()
        return [row for data in spec["datasets"].values() for row in data]

    points = [r for r in drawn() if "captures" in r and "what" not in r]
    assert [p["bytes"] for p in points] == [p["bytes"] for p in document["frontier"]]
    assert all(p["peak_bytes"] >= p["bytes"] for p in points)
    cuts = [TorchCut(b, int(384 * b), None, None, 0) for b in (1.0, 0.8, 0.5)]
    rules = {"PyTorch's min-cut", "PyTorch's at 0.8", "PyTorch's partitioner"}
    kinds = (None,), (cuts,), (cuts, "peak_bytes"), ((),)
    alone, beside, peaks, eager = ({r.get("what") for r in drawn(*k)} for k in kinds)
    assert {"Minimum cut", "Keep only the inputs", "chosen: Minimum cut"} <= alone
    assert "PyTorch eager" not in alone and {"PyTorch eager", *rules} <= beside
    assert rules.isdisjoint(peaks | eager)


def test_pytorchs_cuts_are_a_curve_where_their_time_is_known_and_alike_ones_a_point():
    joint = Joint(chain())
    document = tables.frontier_document(joint)
    sizes = (1.0, 384, 0.0, 900, 0), (0.8, 96, 0.1, 700, 0), (0.7, 96, 0.1, 700, 0)
    cuts = tuple(TorchCut(*c) for c in (*sizes, (0.0, 0, 0.9, 800, 2)))
    rivals = tables.torch_saved_document(TorchSaved(512, cuts))
    here = {"what": "chosen", "bytes": 96, "net_share": 0.1, "peak_bytes": 700}
    for field in tables.AXES.values():
        spec = charts.frontier(document, rivals, here, field).to_dict()
        rows = [r for data in spec["datasets"].values() for r in data if "budgets" in r]
        assert {r["budgets"] for r in rows} == {"1", "0.7 to 0.8", "0"}
        hollow = [
            {r["budgets"] for r in spec["datasets"][layer["data"]["name"]]}
            for layer in spec["layer"]
            if layer["mark"].get("filled") is False and "shape" in layer["encoding"]
        ]
        assert hollow == [{"0"}]
        legend = charts.frontier_legend(document, rivals, field)
        assert "PyTorch&#x27;s, by budget" in legend
        assert ("PyTorch eager" in legend) == (field == "bytes")
        assert ("Within a peak" in legend) == (field == "peak_bytes")
        rows = (r for d in spec["datasets"].values() for r in d)
        curve = [r for r in rows if r.get("what") == "Within a peak"]
        peaks = {r["peak_bytes"] for r in document["within_peak"]}
        assert {r["peak_bytes"] for r in curve} == (peaks if field == "peak_bytes" else set())
    assert "Within 0 PyTorch's backward draws masks anew" in tables.masks_line(rivals)
    found = {**tables.cut_document(cut(joint)), **document, "rivals": rivals}
    sections = {s.get("title"): s for s in tables.cut_sections(found)}
    table = sections["PyTorch's partitioner, within each activation_memory_budget"]
    assert [row["kept"] for row in table["rows"]] == ["384 B", "96 B", "96 B", "0 B"]
    assert sections["Peak of a step against time added"]["data"][-1] == "peak_bytes"


def held():
    from joints import chain
    from relascope.passes.cuts.cut import cut
    from relascope.viz.panels.cut import captures
    from relascope.viz.rows import tables

    found = cut(chain(), "keep_all")
    captures.show(found, tables.cut_document(found), None)


def test_a_click_lists_what_is_held_there_instead_of_at_the_peak():
    page = AppTest.from_function(held).run()
    assert not page.exception
    peak = page.dataframe[-1].value
    assert list(peak["held from node"]) == [3, 2, 1, 4, 5]
    assert peak["bytes"].sum() == 480
    chosen = {"selection": {charts.CLICKED: [{"node": 1}]}}
    page.session_state["held_chart_keep_all_384_480"] = chosen
    assert not page.run().exception
    assert list(page.dataframe[-1].value["name"]) == ["exp"]
    some = {"next read by", "held to"}  # numbers that not every row has, which pandas makes floats
    assert some <= {name for name, form in columns.FORMATS.items() if form == "localized"}


@pytest.mark.parametrize("strategy", ["keep_all", "inputs_only"])
def test_what_is_held_is_drawn_from_the_first_node_to_the_last(strategy):
    depth = tables.cut_document(cut(chain(), strategy))["held"]
    spec = charts.live_bytes_chart(depth).to_dict()
    rows = next(d for d in spec["datasets"].values() if "what" in d[0])
    assert rows[0]["node"] == 0 and rows[0]["bytes"] == 0
    assert rows[-1]["node"] == depth["forward"] + depth["backward"] + 1
    sorts = {"captured": "keep_all", "computed again": "inputs_only"}  # b and c
    for sort, of in sorts.items():
        most = max(r["bytes"] for r in rows if r["what"] == sort)
        assert most == (384 if of == strategy else 0)
