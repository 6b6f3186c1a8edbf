"""Boxes that keep their places when one graph replaces another."""

from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.viz.drawing.layout import layout
from relascope.viz.drawing.modules import module_groups
from relascope.viz.drawing.stable_places import Places

TYPE = (TensorType((4, 4), "float32"),)


def graph(*calls):
    """A graph of (id, what it reads, module) over one input, "x"."""
    nodes = [Node("x", Kind.INPUT, name="x", outputs=TYPE)]
    nodes += [
        Node(i, Kind.CALL, op="add", inputs=tuple(reads), outputs=TYPE, scope=scope)
        for i, reads, scope in calls
    ]
    return Graph("main", "relay", tuple(nodes), ("x",), (nodes[-1].id,))


CHAIN = (("a", ["x"], "m"), ("b", ["a"], "m"), ("c", ["b"], ""), ("d", ["c"], ""))


def draw(places, drawn, beside=None, opened=None):
    tree = module_groups(drawn)
    opened = tuple(tree.groups) if opened is None else opened
    fresh = layout(drawn, opened, "TB", tree)
    return places.keep(drawn, tree, opened, fresh, beside or {})


def middles(drawn, origin="x"):
    """By id, the middle of each box seen from one that always stands still."""
    at = {b.id: (b.x + b.w / 2, b.y + b.h / 2) for b in drawn.boxes if not b.open}
    return {i: (x - at[origin][0], y - at[origin][1]) for i, (x, y) in at.items()}


def close(a, b):
    return abs(a[0] - b[0]) < 1 and abs(a[1] - b[1]) < 1


def test_a_node_that_goes_leaves_the_others_where_they_are():
    places = Places()
    before = middles(draw(places, graph(*CHAIN)))
    after = middles(draw(places, graph(CHAIN[0], ("c", ["a"], ""), CHAIN[3])))
    assert set(after) == {"x", "a", "c", "d"}
    assert all(close(after[i], before[i]) for i in after)


def test_a_node_that_comes_finds_a_place_of_its_own():
    places = Places()
    before = middles(draw(places, graph(*CHAIN)))
    new = ("n", ["b"], "m")
    drawn = draw(places, graph(*CHAIN[:2], new, ("c", ["n"], ""), CHAIN[3]))
    after = middles(drawn)
    assert all(close(after[i], before[i]) for i in before)
    boxes = {b.id: b for b in drawn.boxes}
    n = boxes["n"]
    assert not [
        b.id
        for b in drawn.boxes
        if not b.open
        and b is not n
        and b.x < n.x + n.w
        and n.x < b.x + b.w
        and b.y < n.y + n.h
        and n.y < b.y + b.h
    ]
    m = boxes["group:m"]
    assert m.x <= n.x and n.x + n.w <= m.x + m.w and m.y <= n.y and n.y + n.h <= m.y + m.h


def test_going_back_shows_what_was_there():
    places = Places()
    first = middles(draw(places, graph(*CHAIN)))
    draw(places, graph(CHAIN[0], ("c", ["a"], ""), CHAIN[3]))
    again = middles(draw(places, graph(*CHAIN)))
    assert all(close(again[i], first[i]) for i in first)


def test_what_stands_for_another_takes_its_place():
    places = Places()
    before = middles(draw(places, graph(*CHAIN)))
    replaced = graph(*CHAIN[:2], ("new", ["b"], ""), ("d", ["new"], ""))
    after = middles(draw(places, replaced, {"new": "c"}))
    assert close(after["new"], before["c"])


def test_curves_end_where_their_boxes_are():
    places = Places()
    draw(places, graph(*CHAIN))
    drawn = draw(places, graph(*CHAIN, ("e", ["a", "d"], "")))
    boxes = {b.id: b for b in drawn.boxes}
    for edge in drawn.edges:
        source, target = boxes[edge.source], boxes[edge.target]
        (x0, y0), (x1, y1) = edge.points[0], edge.points[-1]
        assert source.x - 1 <= x0 <= source.x + source.w + 1, edge
        assert abs(y0 - source.y - source.h) < 1, edge
        assert target.x - 1 <= x1 <= target.x + target.w + 1, edge
        assert abs(y1 - target.y) < 1, edge


def test_a_group_that_opens_or_a_wholly_other_graph_is_laid_out_anew():
    places = Places()
    draw(places, graph(*CHAIN))
    drawn = draw(places, graph(*CHAIN), opened=())
    assert {b.id for b in drawn.boxes} == {"x", "group:m", "c", "d"}
    other = graph(("p", ["x"], ""), ("q", ["p"], ""), ("r", ["q"], ""), ("s", ["r"], ""))
    tree = module_groups(other)
    assert draw(places, other) == Places().keep(other, tree, (), layout(other, (), "TB", tree), {})


def test_everything_lies_inside_the_drawing():
    places = Places()
    draw(places, graph(*CHAIN))
    more = [(f"n{i}", ["x"], "") for i in range(4)]
    drawn = draw(places, graph(*CHAIN, *more))
    assert all(b.x >= 0 and b.x + b.w <= drawn.width for b in drawn.boxes)
    assert all(b.y >= 0 and b.y + b.h <= drawn.height for b in drawn.boxes)
    assert all(0 <= x <= drawn.width for e in drawn.edges for x, _ in e.points)


def test_a_weight_far_from_its_module_does_not_stretch_it_over_others():
    """First the start of a chain reads the weight; then only the module at its end does."""
    places = Places()

    def drawn(first, last, scope):
        rest = [("b", ["a"], ""), ("c", ["b"], ""), ("y", ["c", *last], "m"), ("z", ["y"], "m")]
        made = graph(("a", ["x", *first], ""), *rest)
        weight = Node("w", Kind.CONSTANT, outputs=TYPE, scope=scope)
        nodes = (weight, *made.nodes)
        boxes = draw(places, Graph("main", "relay", nodes, ("x",), ("z",))).boxes
        return {b.id: b for b in boxes}

    before = drawn(["w"], [], "")
    assert before["w"].y < before["b"].y < before["group:m"].y
    after = drawn([], ["w"], "m")
    assert after["w"].y < after["b"].y  # it stays where it stood
    assert after["b"].y + after["b"].h < after["group:m"].y < after["y"].y
