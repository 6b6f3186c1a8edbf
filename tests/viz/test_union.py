"""Steps of one program in the same places."""

from dataclasses import replace

from graphs import graph_of, group, joint
from layouts import flaws, layout
from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.viz.drawing.union import Union

TYPE = (TensorType((4, 4), "float32"),)


def graph(*calls):
    text = (f"; {i} add {' '.join(reads)} {scope and '@' + scope}" for i, reads, scope in calls)
    return graph_of("x" + "".join(text), of="4x4")


CHAIN = (("a", ["x"], "m"), ("b", ["a"], "m"), ("c", ["b"], ""), ("d", ["c"], ""))


def united(*graphs, beside=None):
    union = Union()
    for one in graphs:
        union.add(one, beside)
    return union


def draw(union, step):
    return layout(step, union.graph()[1].groups, union=union)


def corners(drawn, origin="x"):
    """By id, where each box stands, seen from one that is in every step."""
    at = {b.id: (b.x, b.y) for b in drawn.boxes if not b.open}
    return {i: (round(x - at[origin][0]), round(y - at[origin][1])) for i, (x, y) in at.items()}


def test_what_is_in_two_steps_stands_in_one_place():
    steps = (
        graph(*CHAIN),
        graph(CHAIN[0], ("c", ["a"], ""), CHAIN[3]),
        graph(*CHAIN[:2], ("n", ["b"], "m"), ("c", ["n"], ""), CHAIN[3], ("e", ["a", "d"], "")),
    )
    union = united(*steps)
    places = [corners(draw(union, step)) for step in steps]
    for step, found in zip(steps, places, strict=True):
        assert set(found) == {n.id for n in step.nodes}
        assert flaws(draw(union, step)) == ((), ())
    everywhere = set.intersection(*map(set, places))
    assert everywhere == {"x", "a", "c", "d"}
    assert all(p[i] == places[0][i] for p in places for i in everywhere)


def test_what_stands_for_another_takes_its_place():
    steps = graph(*CHAIN), graph(*CHAIN[:2], ("new", ["b"], ""), ("d", ["new"], ""))
    union = united(*steps, beside={"new": "c"})
    before, after = (corners(draw(union, step)) for step in steps)
    assert after["new"] == before["c"]
    assert len(union.graph()[0]) == 5
    crowded = united(graph(*CHAIN), graph(*CHAIN, ("new", ["d"], "")), beside={"new": "c"})
    assert crowded.slot["new"] == "new"  # "c" is there itself


def test_a_fused_function_stands_where_the_last_stood_that_it_fuses():
    fused = group("f", "", "x", graph(*CHAIN[:3]), "4x4")
    after = graph_of(["x", fused, "d add f"], of="4x4")
    union = united(graph(*CHAIN), after)
    assert union.slot["f"] == "c"
    assert corners(draw(union, after))["f"] == corners(draw(union, graph(*CHAIN)))["c"]


def test_steps_that_contradict_each_other_are_drawn_all_the_same():
    steps = graph(*CHAIN), graph(("c", ["x"], ""), ("d", ["c"], ""), ("a", ["d"], "m"))
    union = united(*steps)
    assert [n.id for n in union.graph()[0]] == ["x", "a", "b", "c", "d"]
    for step in steps:
        drawn = draw(union, step)
        assert {(e.source, e.target) for e in drawn.edges} == {
            (e, n.id) for n in step.nodes for e in n.edges
        }
        assert flaws(drawn) == ((), ())


def test_another_program_begins_anew():
    other = graph(("p", ["x"], ""), ("q", ["p"], ""), ("r", ["q"], ""), ("s", ["r"], ""))
    assert set(united(graph(*CHAIN), other).slot) == {n.id for n in other}
    version = (union := united(other)).version
    union.add(other)
    assert union.version == version


def test_a_joint_graphs_halves_keep_its_places_and_captures_stand_by_their_readers():
    whole = joint()
    back = {n.id for n in whole if n.id.startswith("g")}
    needed = back | {e for n in whole if n.id in back for e in n.edges}
    nodes = tuple(
        n if n.id in back else Node(n.id, Kind.INPUT, name=n.id, outputs=n.outputs, scope=n.scope)
        for n in whole
        if n.id in needed
    )
    backward = Graph("backward", "relay", nodes, tuple(needed - back), whole.outputs[-1:])
    union = united(whole, backward)
    everything, part = draw(union, whole), draw(union, backward)
    seen, alone = corners(everything, "grad_out"), corners(part, "grad_out")
    assert all(alone[i] == seen[i] for i in back)
    assert flaws(part) == ((), ())
    boxes = {b.id: b for b in part.boxes}
    assert "group:forward:" not in boxes
    left = boxes["group:backward:"].x
    captured = [boxes[i] for i in needed - back]
    assert captured and all(left - 80 < b.x + b.w <= left for b in captured)


def test_a_box_has_room_for_the_second_line_that_a_node_gets_in_a_later_step():
    plain = graph(*CHAIN)
    body = Graph("f", "relay", (Node("x", Kind.INPUT, outputs=TYPE), plain.by_id["b"]), (), ("b",))
    for change in ({"attrs": {"axis": 1}}, {"kind": Kind.FUNCTION, "body": body}):
        nodes = [replace(n, **change) if n.id == "b" else n for n in plain.nodes]
        union = united(plain)
        before = {b.id: b.h for b in draw(union, plain).boxes}
        union.add(fused := plain.with_nodes(nodes))
        after = {b.id: b.h for b in draw(union, fused).boxes}
        assert before["b"] == before["a"] == after["a"] < after["b"]
