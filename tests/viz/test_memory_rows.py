"""A plan of memory as the page, a file and a terminal show it."""

import json
import re

from graphs import graph_of
from relascope.viz.charts import charts
from relascope.viz.drawing.palette import FAULT
from relascope.viz.handed_on.sheet import drawn
from relascope.viz.rows import sections
from relascope.viz.rows.memory import memory_document, memory_sections

ALLOC = "x; s memory.alloc_storage total_space=[84]; a memory.alloc_tensor s offset=0; "
PLAN = (
    ALLOC + "p scale x a writes=[1]; v reshape p; b memory.alloc_tensor s offset={}; "
    "q shift x b writes=[1]; o builtin.alloc_tensor; r difference v q o writes=[2]"
)


def document(offset=0, text=PLAN, of="3x7"):
    return memory_document(graph_of(text.format(offset), ir="relax", of=of))


def text(*given, **more):
    return sections.text(memory_sections(document(*given, **more)))


def test_a_terminal_shows_storages_in_lines_and_steps_in_columns():
    shown = text()
    assert shown.startswith("Storage 1 holds two tensors at step 3: ")
    said = "3 tensors of 252 B in 2 storages of 168 B: reuse saves 84 B, 33%. At most 252 B are"
    assert f"{said} held at once, at step 4, difference." in shown
    assert re.findall(r"^([12]) +84 B  (.*)$", shown, re.M) == [("1", "██!!·"), ("2", "···██")]
    assert re.search(r"^p +scale +1 +float32\[3, 7\] +84 +1 +4 +difference$", shown, re.M)
    right = text(84)
    assert "!" not in right and "holds two" not in right and "Red" not in right


def test_tensors_that_follow_each_other_are_told_apart_and_many_steps_share_columns():
    follow = ALLOC + "p scale x a writes=[1]; q use p x; b memory.alloc_tensor s offset=0; "
    follow += "r w b writes=[0]; t use r x; y exp x"
    assert re.search(r"84 B  ██▓▓·$", text(text=follow), re.M)
    steps = "; ".join(f"u{k} use p x" for k in range(200))
    shown = text(text=f"{ALLOC}p w a writes=[0]; {steps}; y exp x")
    (line,) = re.findall(r"^1 +84 B  (.*)$", shown, re.M)
    assert len(line) == 64 and set(line[:-1]) == {"█"}


def test_what_is_open_is_said_and_in_no_sum_and_no_plan_has_no_sections():
    shown = text("0 :3xn")
    assert "3 tensors of 168 B in 2 storages of 168 B. At most 168 B" in shown
    assert "Not counted: 1 size of tensors and storages that depend on n." in shown
    assert "unknown" not in shown and re.search(r"^q .* float32\[3, n\] +– ", shown, re.M)
    own = text(text="x :?; a builtin.alloc_tensor; p w a writes=[0]", of="?")
    said = "1 tensor of 0 B in 1 storage of 0 B: none is used again. Not counted: 2 sizes of"
    assert own.startswith(f"{said} tensors and storages that are open.")
    assert memory_sections(memory_document(graph_of("x; a exp x"))) == []


def test_a_chart_has_a_bar_for_each_tensor_and_red_where_two_overlap():
    spec = charts.storages(document()).to_dict()
    bars, red = (spec["datasets"][layer["data"]["name"]] for layer in spec["layer"])
    at = [(b["written by"], b["left"], b["right"]) for b in bars]
    assert at == [("scale", 0.56, 4.44), ("shift", 2.56, 4.44), ("difference", 3.56, 5.44)]
    assert bars[0]["bottom"] < bars[1]["top"] < 1 < bars[2]["top"]
    tops = [(2.56, 4.44, b["top"]) for b in bars[:2]]
    assert [(r["left"], r["right"], r["top"]) for r in red] == tops
    assert len(charts.storages(document(84)).to_dict()["layer"]) == 1
    chart = next(s for s in memory_sections(document()) if s["kind"] == "chart")
    svg = drawn(chart)["svg"]
    assert FAULT in svg and "1: 84 B" in svg and "written by: scale" in svg


def test_of_many_storages_the_largest_are_drawn_and_all_are_in_the_document():
    part = "; a{0} builtin.alloc_tensor :{1}; p{0} w a{0} writes=[0] :{1}"
    many = "x" + "".join(part.format(k, k + 1) for k in range(60))
    made = document(text=many)
    spec = json.dumps(charts.storages(made).to_dict())
    assert '\\"60: 240 B\\"' in spec and '\\"21: 84 B\\"' in spec and "20: 80 B" not in spec
    assert len(made["storages"]) == 60 and "20 more; --json has all." in text(text=many)
