"""The graph model: JSON both ways, promises checked, nothing that depends on depth; identity across
steps: what stays the same keeps its id; open sizes; and the memo: what it forgets, and threads."""

import json
from dataclasses import replace
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_graphs import few, graphs
from effort import calls_of
from graphs import chain, graph_of, group, transformer
from relascope.core.graph import Graph, Kind, Literal, Node, Role, TensorType, reached, read_first
from relascope.core.identity import carry_identity
from relascope.core.memo import Memo
from relascope.core.sizes import size_of, sizes_in


def test_json_round_trip_of_everything_a_node_can_hold():
    function = Node(
        "f",
        Kind.FUNCTION,
        attrs={"Primitive": 1, "list": [1, [2.5, None]], "text": 'a"b'},
        inputs=("x", Literal("0.5")),
        outputs=(TensorType((2, "n"), "float16"), TensorType((), "bool")),
        scope="a.b",
        source="aten::relu",
        role=Role.CAPTURED,
        body=graph_of("p; r nn.relu p", name="fused"),
    )
    whole = graph_of(["x :nx4", function], "f", gradients="f")
    graph = replace(whole, kernels={"k": "def k(): ..."})
    assert Graph.from_json(json.loads(json.dumps(graph.to_json()))) == graph


def test_a_long_chain_is_as_good_as_any_and_no_faster_growing_work():
    graph = chain(10_000)
    graph.validate()
    again = Graph.from_json(json.loads(json.dumps(graph.to_json())))
    assert again.nodes == graph.nodes
    assert len(again.ancestors([again.outputs[0]])) == 10_000
    assert again.readers["n0"] == ("n1",)

    def whole(graph):
        return lambda: Graph.from_json(graph.to_json()).ancestors(graph.outputs)

    assert calls_of(whole(chain(4000))) < 4.5 * calls_of(whole(chain(1000)))


def test_what_is_wrong_with_a_graph_or_its_json_is_said():
    data = transformer().to_json()
    del data["nodes"][5]["kind"]
    bare = {"name": "x", "ir": "relay"}
    for wrong, said in ((data, "kind"), (bare, "nodes"), (data | {"nodes": 5}, "another form")):
        with pytest.raises(ValueError, match=said):
            Graph.from_json(wrong)
    with pytest.raises(ValueError, match="nowhere"):
        replace(transformer(), outputs=("nowhere",)).validate()


def test_counts_and_sizes():
    graph = transformer(2)
    assert graph.operators["nn.batch_matmul"] == 2 * 8
    assert list(graph.operators.values()) == sorted(graph.operators.values(), reverse=True)
    assert [TensorType((2, n), "float16").bytes for n in (3, "n")] == [12, None]
    assert TensorType((), "int64").elements == 1


def renamed(graph, name):
    def each(ids):
        return tuple(name(i) if isinstance(i, str) else i for i in ids)

    nodes = tuple(replace(n, id=name(n.id), inputs=each(n.inputs)) for n in graph)
    return replace(graph, nodes=nodes, inputs=each(graph.inputs), outputs=each(graph.outputs))


@few
@given(graphs(), st.data())
def test_a_node_that_is_read_before_it_is_made_is_refused(graph, data):
    node = data.draw(st.sampled_from([n for n in graph.nodes if n.edges]))
    first = graph.by_id[node.edges[0]]
    rest = [n for n in graph.nodes if n is not first]
    with pytest.raises(ValueError, match=first.id):
        graph.with_nodes([*rest, first]).validate()
    with pytest.raises(ValueError, match=f"two nodes have the id {node.id}"):
        graph.with_nodes([*graph.nodes, node]).validate()


@few
@given(graphs())
def test_a_graph_comes_back_from_json_and_readers_are_edges_turned_round(graph):
    graph.validate()
    assert Graph.from_json(json.loads(json.dumps(graph.to_json()))) == graph
    edges = {(source, n) for n, read in graph.edges.items() for source in read}
    assert edges == {(n, reader) for n, readers in graph.readers.items() for reader in readers}


@few
@given(graphs())
def test_a_graph_is_itself_whatever_its_nodes_are_called(graph):
    for later in (graph, renamed(graph, lambda i: f"new/{i}")):
        matched = carry_identity(graph, later)
        assert not (matched.added or matched.removed or matched.changed)
        assert set(matched.renamed) == set(later.by_id)
        assert set(matched.graph.by_id) == set(graph.by_id)
        assert renamed(later, matched.renamed.__getitem__).nodes == matched.graph.nodes
        matched.graph.validate()


@few
@given(graphs(), st.data())
def test_what_is_added_and_removed_is_that_and_nothing_else(graph, data):
    base = data.draw(st.sampled_from(graph.nodes))
    call = Node("fresh", Kind.CALL, "only.here", inputs=(base.id,))
    fresh = replace(call, outputs=base.outputs, scope=base.scope, role=base.role)
    larger = replace(graph, nodes=(*graph.nodes, fresh), outputs=(*graph.outputs, "fresh"))
    there = carry_identity(graph, renamed(larger, lambda i: f"new/{i}"))
    assert len(there.added) == 1
    assert not (there.removed or there.changed)
    back = carry_identity(larger, renamed(graph, lambda i: f"old/{i}"))
    assert back.removed == {"fresh"}
    assert not (back.added or back.changed)


STEPS = """\
readers of a changed node keep their ids:
x; a transpose x; b matmul x a @q transpose_b=False; c exp b @q
1=x; 2 matmul 1 1 @q transpose_b=True; 3 exp 2 @q -> x ~b c -a
merged duplicates remove the second:
x; a exp x; b exp x; c add a b
1=x; 2 exp 1; 3 add 2 2 -> x a ~c -b
a bound parameter is the same node:
w!; x; a add x w
1# parameter='w'; 2=x; 3 add 2 1 -> ~w x a
another attribute on the same inputs is a change:
x; a kernel x; b exp a
1=x; 2 kernel 1 pattern=4; 3 exp 2 -> x ~a b
an insertion is the only thing added:
x; a exp x @m; b log a @m
1=x; 2 exp 1 @m; 3 cast 2 @m; 4 log 3 @m -> x a +3 ~b""".splitlines()
"""Before, after, and the ids then, with what was changed (~), added (+) and removed (-)."""


@pytest.mark.parametrize("at", range(0, len(STEPS), 3), ids=STEPS[::3])
def test_what_a_step_did_is_told_by_ids(at):
    before, (after, _, told) = STEPS[at + 1], STEPS[at + 2].partition(" -> ")
    matched = carry_identity(graph_of(before), graph_of(after))
    marks = dict.fromkeys(matched.added, "+") | dict.fromkeys(matched.changed, "~")
    found = [marks.get(n.id, "") + n.id for n in matched.graph]
    assert " ".join([*found, *(f"-{i}" for i in sorted(matched.removed))]) == told


def test_a_new_id_never_collides_with_an_old_one():
    before = graph_of("x; 2 exp x")
    matched = carry_identity(before, graph_of("x; 2 cast x; 5 exp x", "2 5"))
    matched.graph.validate()
    assert matched.renamed["5"] == "2"
    assert matched.renamed["2"] not in {"2", "x"}


def test_fusing_adds_groups_and_removes_nothing():
    before = graph_of("x; a exp x; b log a; c sum b")
    body = graph_of("f.p=p0; f.1 exp f.p; f.2 log f.1")
    matched = carry_identity(before, graph_of(["1=x", group("f", "exp_log", "1", body), "2 sum f"]))
    assert (matched.added, matched.removed, matched.changed) == ({"f"}, set(), set())
    assert [n.id for n in matched.graph.by_id["f"].body] == ["f.p", "a", "b"]


def test_lost_provenance_is_taken_from_before():
    before = graph_of("x; a exp x @block.0 <aten::exp")
    node = carry_identity(before, graph_of("1=x; 2 exp 1")).graph.by_id["a"]
    assert (node.scope, node.source) == ("block.0", "aten::exp")


def test_a_size_is_computed_from_those_that_are_known():
    known = {"n": 5, "m1": 3}
    for text, size in {"n": 5, "2 * n + 1": 11, "(n - m1) // 2": 1, "n % m1": 2, "7": 7}.items():
        assert size_of(text, known) == size
    assert size_of("T.max(n, 7) - T.min(n, m1)", known) == 4
    assert list(sizes_in("T.max(2 * n, 4) + m1 // n")) == ["n", "m1"]


@pytest.mark.parametrize("text", ["?", "k", "n + k", "n // 0", "n.real", "f(n)", "n ** n", "n; n"])
def test_what_is_no_arithmetic_of_known_sizes_is_no_size(text):
    with pytest.raises(ValueError, match=r"is not a size|cannot be computed from"):
        size_of(text, {"n": 5})


def test_the_least_recently_used_is_forgotten():
    memo, made = Memo(2), []
    for key in ("a", "b", "a", "c", "a", "b"):
        memo.get(key, lambda key=key: made.append(key))
    assert made == ["a", "b", "c", "b"]


class _Interrupted(str):
    """A key that another thread replaces in the memo as soon as it has been seen there once."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        self.seen()
        return str.__eq__(self, other)


def test_a_value_that_another_thread_drops_is_still_returned():
    memo = Memo(1)
    memo.put("key", 1)
    other = Thread(target=memo.put, args=("another", 2))
    looks = iter(range(3))

    def seen():
        if next(looks, 3) == 1:
            other.start()
            other.join(0.2)  # it waits for a lock that this thread has

    key = _Interrupted("key")
    key.seen = seen
    assert memo.get(key, lambda: 3) == 1
    other.join()
    assert memo.get("another", lambda: 4) == 2


@given(graphs())
def test_what_is_reached_comes_after_what_it_reads(graph):
    order = [*read_first(graph.outputs, graph.edges.__getitem__)]
    assert sorted(order) == sorted(reached(graph.outputs, graph.edges.__getitem__))
    place = {node_id: k for k, node_id in enumerate(order)}
    assert all(place[read] < place[i] for i in order for read in graph.edges[i])


def test_a_deep_chain_is_walked_without_recursion_and_the_first_start_comes_first():
    deep = chain(5000)
    assert [*read_first(deep.outputs, deep.edges.__getitem__)] == [*deep.by_id]
    reads = {"a": "bc", "b": "", "c": "b", "d": "c"}
    assert [*read_first("da", reads.__getitem__)] == ["b", "c", "d", "a"]
