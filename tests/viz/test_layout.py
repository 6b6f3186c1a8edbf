"""The drawing: everything placed, nothing overlaps, edges run along, the same every time, and steps
of one program in the same places."""

import random
from dataclasses import replace

import pytest

from drawn_graphs import seeds
from effort import builtins_called
from graphs import chain, graph_of, group, joint, random_graph, transformer
from layouts import OUTSIDE, Box, Layout, flaws, layout, question
from relascope.core.graph import Graph, Kind, Node, Role, TensorType
from relascope.viz.drawing import javascript
from relascope.viz.drawing.modules import fold_constants, module_groups
from relascope.viz.drawing.union import Union

SEEDS = seeds(9, 25)


def _some_open(graph: Graph, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [g for g in module_groups(graph).groups if draw.random() < 0.6]


def _inside(a: Box, b: Box) -> bool:
    across = b.x - 0.2 <= a.x and a.x + a.w <= b.x + b.w + 0.2
    return across and b.y - 0.2 <= a.y and a.y + a.h <= b.y + b.h + 0.2


def _check(graph: Graph, drawn: Layout) -> None:
    tree = module_groups(graph)
    boxes = {b.id: b for b in drawn.boxes}
    assert len(boxes) == len(drawn.boxes)
    # Every node is shown, by itself or by a closed group around it.
    for node in graph.nodes:
        shown = boxes[drawn.shown[node.id]]
        if shown.kind == "node":
            assert shown.id == node.id
        else:
            assert not shown.open
            assert shown.group in tree.path(tree.group_of[node.id])
    # Every box lies in the drawing and in its group.
    for box in drawn.boxes:
        assert 0 <= box.x <= box.x + box.w <= drawn.width + 0.2
        assert 0 <= box.y <= box.y + box.h <= drawn.height + 0.2
    assert flaws(drawn) == ((), ())
    # Edges are just those of the graph, and begin and end at their boxes.
    edges = {(drawn.shown[s], drawn.shown[n.id]) for n in graph for s in n.edges}
    wanted = (edge for edge in edges if edge[0] != edge[1])
    assert sorted(wanted) == sorted((e.source, e.target) for e in drawn.edges)
    for edge in drawn.edges:
        for end, place in ((edge.source, 0), (edge.target, -1)):
            (x, y), box = edge.points[place], boxes[end]
            assert box.x - 0.2 <= x <= box.x + box.w + 0.2
            assert box.y - 0.2 <= y <= box.y + box.h + 0.2


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs(seed):
    graph = random_graph(seed, nodes=20 + 8 * seed)
    drawn = layout(graph, _some_open(graph, seed))
    _check(graph, drawn)
    boxes = {b.id: b for b in drawn.boxes}
    for edge in drawn.edges:  # producers stand before their readers, whatever groups do
        a, b = boxes[edge.source], boxes[edge.target]
        assert a.y + a.h < b.y or a.x + a.w < b.x  # above it, or in a column before


def test_a_group_that_feeds_and_is_fed_by_one_node_is_split():
    graph = graph_of("x @a; r nn.relu x @a; t tanh r; e exp t @a; s add e r @a")
    for opened in ([], ["a"]):
        drawn = layout(graph, opened)
        _check(graph, drawn)
        parts = [box for box in drawn.boxes if box.kind == "group"]
        assert [p.lines[0] for p in parts] == ["a (1 of 2)", "a (2 of 2)"]
        middle = next(box for box in drawn.boxes if box.id == "t")
        assert parts[0].y + parts[0].h < middle.y
        assert middle.y + middle.h < parts[1].y


def test_weights_of_a_split_group_stand_in_the_part_that_reads_them():
    text = "x @a; r nn.relu x @a; w!a.w @a; turned transpose w @a; t tanh r; d nn.dense t turned @a"
    graph = graph_of(text)
    boxes = {box.id: box for box in layout(graph, ["a"]).boxes}
    first, second = (boxes[f"group:a{part}"] for part in ("", "#2"))
    assert not _inside(boxes["turned"], first) and _inside(boxes["turned"], second)


@pytest.mark.parametrize(
    "nodes", [600, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (900, 1200))]
)
def test_no_line_runs_through_a_node_however_long_and_many_they_are(nodes):
    graph = random_graph(3, nodes)
    assert flaws(layout(graph, module_groups(graph).groups)) == ((), ())


def test_the_same_every_time():
    """Whatever was laid out before, of which parts are remembered."""
    graph = random_graph(11, 200)
    opened = _some_open(graph, 2)
    for more in range(len(opened)):
        layout(graph, opened[:more])
    first = layout(graph, opened)
    javascript._function.cache_clear()
    javascript._engine.cache_clear()
    assert layout(graph, list(reversed(opened))) == first


def test_siblings_align_and_a_tall_group_pushes_nobody():
    drawn = layout(fold_constants(transformer()), module_groups(transformer()).groups)
    heads = [b for b in drawn.boxes if b.group.endswith(("query", "key", "value")) and b.open]
    assert len(heads) == 3
    assert len({b.y for b in heads}) == 1
    tall = "".join(f"; t{i} nn.relu t{i - 1} @tall" for i in range(1, 12))
    text = f"x; t0 nn.relu x @tall{tall}; e exp x; beside tanh e; s add t11 beside"
    drawn = layout(graph_of(text), ["tall"])
    boxes = {box.id: box for box in drawn.boxes}
    group = boxes["group:tall"]
    assert boxes["beside"].y + boxes["beside"].h < group.y + group.h / 2


def test_a_joint_graph_runs_down_and_back_up():
    graph = joint()
    drawn = layout(graph, module_groups(graph).groups)
    boxes = {b.id: b for b in drawn.boxes}
    _check(graph, drawn)
    halves = boxes["group:forward:"], boxes["group:backward:"]
    assert halves[0].x + halves[0].w < halves[1].x
    role = {n.id: n.role for n in graph.nodes}
    for edge in drawn.edges:
        a, b = boxes[edge.source], boxes[edge.target]
        crossing = role[edge.source] is not Role.BACKWARD and edge.source != "grad_out"
        if role[edge.target] is not Role.BACKWARD:
            assert a.y + a.h < b.y
        elif crossing:
            assert edge.kind == "crossing"
        else:
            assert b.y + b.h < a.y


def test_edges_between_closed_groups_are_one_with_the_value_that_passes():
    graph = fold_constants(transformer(2))
    drawn = layout(graph, ["encoder.layer"])
    (between,) = (e for e in drawn.edges if e.source == "group:encoder.layer.0")
    assert (between.target, between.label) == ("group:encoder.layer.1", "float32[1, 14, 64]")


def test_unknown_groups_are_ignored_and_empty_graphs_drawn():
    graph = transformer()
    assert layout(graph, ["no.such.module"]) == layout(graph, [])
    assert layout(Graph("e", "relay", (), (), ()), []).boxes == ()


def _effort(graph: Graph, modules: bool) -> int:
    groups = module_groups(graph).groups if modules else []
    return builtins_called(*OUTSIDE, question(graph, groups))


@pytest.mark.parametrize("modules", [True, False])
def test_work_grows_with_the_graph_and_hardly_faster(modules):
    def made(layers):
        if modules:
            return fold_constants(transformer(layers))
        whole = joint(layers)
        nodes = [Node(n.id, n.kind, n.op, inputs=n.inputs, outputs=n.outputs) for n in whole]
        return Graph("flat", "relay", tuple(nodes), (), (nodes[-1].id,))

    small, large = (made(5), made(20)) if modules else (made(3), made(12))
    assert len(large) > 3.8 * len(small)
    assert _effort(large, modules) < 4.5 * _effort(small, modules)


def test_a_long_chain_needs_no_recursion():
    graph = chain(5000)
    drawn = layout(graph, module_groups(graph).groups)
    assert sum(b.kind == "node" for b in drawn.boxes) == 5000


def test_a_forward_that_reads_the_backward_is_laid_out_in_parts():
    """Steps drawn in each other's places may read so; none of it stands beside the other."""
    graph = joint()
    back = next(n for n in graph if n.role is Role.BACKWARD and n.kind is Kind.CALL)
    last = replace(back, id="turned", role=Role.FORWARD, inputs=(back.id,), scope="")
    turned = graph.with_nodes((*graph.nodes, last))
    tree = module_groups(turned)
    for opened in (tuple(tree.groups), (), tree.roots):
        drawn = layout(turned, opened)
        assert drawn.shown["turned"] in {b.id for b in drawn.boxes}
        assert all(b.w > 0 and b.h > 0 for b in drawn.boxes)


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
        drawn, edges = draw(union, step), {(e, n.id) for n in step for e in n.edges}
        assert {(e.source, e.target) for e in drawn.edges} == edges
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
    given = {"kind": Kind.INPUT, "op": "", "attrs": {}, "inputs": (), "role": Role.NONE}
    there = (n for n in whole if n.id in needed)
    nodes = tuple(n if n.id in back else replace(n, name=n.id, **given) for n in there)
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
