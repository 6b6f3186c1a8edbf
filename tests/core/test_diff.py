"""Identity across steps: what stays the same keeps its id, whatever happened around it."""

from dataclasses import replace

from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.core.identity import carry_identity

T = TensorType((2, 3), "float32")


def call(node_id, op, *inputs, attrs=None, scope="", source="", outputs=(T,)):
    return Node(
        node_id,
        Kind.CALL,
        op,
        attrs=attrs or {},
        inputs=inputs,
        outputs=outputs,
        scope=scope,
        source=source,
    )


def var(node_id, name, kind=Kind.INPUT):
    return Node(node_id, kind, name=name, outputs=(T,))


def graph(*nodes, outputs=None):
    inputs = [n.id for n in nodes if n.kind in (Kind.INPUT, Kind.PARAMETER)]
    made = Graph("main", "relay", nodes, tuple(inputs), tuple(outputs or [nodes[-1].id]))
    made.validate()
    return made


def test_an_equal_graph_keeps_every_id():
    before = graph(var("x", "x"), call("a", "exp", "x"), call("b", "add", "a", "x"))
    after = graph(var("1", "x"), call("2", "exp", "1"), call("3", "add", "2", "1"))
    matched = carry_identity(before, after)
    assert matched.graph == before
    assert not (matched.added or matched.removed or matched.changed)


def test_readers_of_a_changed_node_keep_their_ids():
    before = graph(
        var("x", "x"),
        call("a", "transpose", "x"),
        call("b", "matmul", "x", "a", attrs={"transpose_b": False}, scope="q"),
        call("c", "exp", "b", scope="q"),
    )
    after = graph(
        var("1", "x"),
        call("2", "matmul", "1", "1", attrs={"transpose_b": True}, scope="q"),
        call("3", "exp", "2", scope="q"),
    )
    matched = carry_identity(before, after)
    assert [n.id for n in matched.graph] == ["x", "b", "c"]
    assert matched.changed == {"b"}
    assert matched.removed == {"a"}
    assert not matched.added


def test_merged_duplicates_remove_the_second():
    before = graph(
        var("x", "x"), call("a", "exp", "x"), call("b", "exp", "x"), call("c", "add", "a", "b")
    )
    after = graph(var("1", "x"), call("2", "exp", "1"), call("3", "add", "2", "2"))
    matched = carry_identity(before, after)
    assert matched.removed == {"b"}
    assert [n.id for n in matched.graph] == ["x", "a", "c"]
    assert matched.changed == {"c"}


def test_a_bound_parameter_is_the_same_node():
    weight = Node("w", Kind.PARAMETER, name="w", outputs=(T,))
    constant = Node("1", Kind.CONSTANT, attrs={"parameter": "w"}, outputs=(T,))
    before = graph(weight, var("x", "x"), call("a", "add", "x", "w"))
    after = graph(constant, var("2", "x"), call("3", "add", "2", "1"))
    matched = carry_identity(before, after)
    assert [n.id for n in matched.graph] == ["w", "x", "a"]
    assert matched.changed == {"w"}


def test_another_attribute_on_the_same_inputs_is_a_change():
    before = graph(var("x", "x"), call("a", "kernel", "x"), call("b", "exp", "a"))
    marked = replace(call("2", "kernel", "1"), attrs={"pattern": 4})
    matched = carry_identity(before, graph(var("1", "x"), marked, call("3", "exp", "2")))
    assert [n.id for n in matched.graph] == ["x", "a", "b"]
    assert (matched.added, matched.removed, matched.changed) == (set(), set(), {"a"})


def test_an_insertion_is_the_only_thing_added():
    before = graph(
        var("x", "x"), call("a", "exp", "x", scope="m"), call("b", "log", "a", scope="m")
    )
    after = graph(
        var("1", "x"),
        call("2", "exp", "1", scope="m"),
        call("3", "cast", "2", scope="m"),
        call("4", "log", "3", scope="m"),
    )
    matched = carry_identity(before, after)
    assert matched.added == {"3"}
    assert matched.changed == {"b"}
    assert not matched.removed


def test_a_new_id_never_collides_with_an_old_one():
    before = graph(var("x", "x"), call("2", "exp", "x"))
    after = graph(var("x", "x"), call("2", "cast", "x"), call("5", "exp", "x"), outputs=["2", "5"])
    matched = carry_identity(before, after)
    matched.graph.validate()
    assert matched.renamed["5"] == "2"
    assert matched.renamed["2"] not in {"2", "x"}


def test_fusing_adds_groups_and_removes_nothing():
    before = graph(
        var("x", "x"), call("a", "exp", "x"), call("b", "log", "a"), call("c", "sum", "b")
    )
    body = graph(var("f.p", "p0"), call("f.1", "exp", "f.p"), call("f.2", "log", "f.1"))
    after = graph(
        var("1", "x"),
        Node("f", Kind.FUNCTION, "exp_log", inputs=("1",), outputs=(T,), body=body),
        call("2", "sum", "f"),
    )
    matched = carry_identity(before, after)
    assert matched.added == {"f"}
    assert not matched.removed
    assert not matched.changed
    function = matched.graph.by_id["f"]
    assert [n.id for n in function.body] == ["f.p", "a", "b"]


def test_lost_provenance_is_taken_from_before():
    before = graph(var("x", "x"), call("a", "exp", "x", scope="block.0", source="aten::exp"))
    after = graph(var("1", "x"), call("2", "exp", "1"))
    node = carry_identity(before, after).graph.by_id["a"]
    assert (node.scope, node.source) == ("block.0", "aten::exp")


def test_a_long_chain_is_matched_without_recursion():
    def chain(prefix):
        nodes = [var(f"{prefix}0", "x")]
        nodes += [call(f"{prefix}{i}", "exp", f"{prefix}{i - 1}") for i in range(1, 10_000)]
        return graph(*nodes)

    matched = carry_identity(chain("a"), chain("b"))
    assert not (matched.added or matched.removed or matched.changed)
