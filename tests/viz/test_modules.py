"""Small constants go into labels, nodes into modules, each once; nothing else changes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from drawn_graphs import few, graphs
from graphs import chain, drawn_boxes, graph_of, group, joint, random_graph, transformer
from relascope.core.graph import Graph, Kind, Literal
from relascope.viz.drawing.modules import BACKWARD, FORWARD, fold_constants, module_groups


def _with_constant(elements: int, text: bool = True) -> Graph:
    value = f"value='[{','.join(['1'] * elements)}]'" if text else ""
    return graph_of(f"x; c#d {value} :{elements}; m multiply x c; s add c c", "m s")


def test_constants_with_fewer_than_ten_elements_fold_the_limit_moves_and_order_stays():
    sizes = {elements: len(fold_constants(_with_constant(elements))) for elements in (1, 9, 10)}
    assert sizes == {1: 3, 9: 3, 10: 4}
    graph = _with_constant(4)
    assert len(fold_constants(graph, fewer_than=4)) == len(graph)
    folded = fold_constants(graph, fewer_than=5)
    multiply, add = folded.nodes[-2:]
    text = Literal("[1,1,1,1]")
    assert multiply.inputs == ("x", text)
    assert add.inputs == (text, text)


def test_constants_without_a_text_and_results_stay_and_bodies_fold_too():
    assert len(fold_constants(_with_constant(1, text=False))) == 4
    assert len(fold_constants(graph_of("c#1 value='1' :"))) == 1
    inside = _with_constant(1)
    body = fold_constants(graph_of(["y", group("f", "", "y", inside)])).by_id["f"].body
    assert body is not None
    assert len(body) == len(inside) - 1
    graph = random_graph(5)
    assert fold_constants(graph) is graph


def test_groups_follow_the_modules():
    tree = module_groups(fold_constants(transformer(3)))
    layer = tree.groups["encoder.layer.1"]
    assert tree.roots == ("encoder.layer",)  # "encoder" holds nothing else
    assert layer.label == "layer.1"
    query = tree.groups["encoder.layer.1.attention.self.query"]
    ends = ["layer", "1", "attention", "self", "query"]
    assert list(tree.path(query.id)) == [".".join(["encoder", *ends[:k]]) for k in range(1, 6)]
    assert query.operators == {"add": 1, "nn.batch_matmul": 1, "transpose": 1}
    assert (query.parameter_bytes, query.nodes) == (4 * (64 * 64 + 64), 5)
    scopes = [n.scope for n in fold_constants(transformer(3))]
    assert layer.nodes == sum(scope.startswith("encoder.layer.1.") for scope in scopes)


def test_a_joint_graph_has_two_halves():
    graph = joint()
    tree = module_groups(graph)
    assert set(tree.roots) == {FORWARD, BACKWARD}
    assert tree.path(tree.group_of["grad_out"])[0] == BACKWARD  # only the backward reads it
    assert all(tree.path(tree.group_of[n.id])[0] == FORWARD for n in transformer().nodes)
    assert "backward:attention.self" in tree.groups


def test_what_is_open_at_first():
    small = module_groups(transformer())
    assert set(small.open_at_first()) == set(small.groups)
    large = module_groups(transformer(40))
    assert large.open_at_first() == ()  # forty layers that are alike stay rolled up
    assert large.groups["encoder.layer"].label == "encoder.layer × 40"
    assert drawn_boxes(large, ()) <= 120
    wide = module_groups(graph_of("; ".join(f"x{i} @m" for i in range(500))))
    assert wide.open_at_first() == ()


def test_a_parameter_filed_under_its_own_name_belongs_to_the_module():
    graph = graph_of("w!a.weight @a.weight; c nn.relu w @a")
    assert module_groups(graph).group_of == {"w": "a", "c": "a"}


def test_modules_that_are_alike_are_rolled_up():
    tree = module_groups(fold_constants(transformer(12)))
    assert tree.groups["encoder.layer"].times == 12
    assert module_groups(fold_constants(transformer(2))).groups["encoder.layer"].times == 1
    text, last = "x", "x"
    for i, op in enumerate(["exp", "exp", "exp", "tanh", "exp"]):
        text += f"; a{i} {op} {last} @net.{i}; b{i} nn.relu a{i} @net.{i}"
        last = f"b{i}"
    tree = module_groups(graph_of(f"{text}; s add {last} {last} @net"))
    rolled = tree.groups["net.0…2"]
    assert (rolled.label, rolled.times, rolled.nodes) == ("net × 3", 3, 6)
    assert rolled.operators == {"exp": 3, "nn.relu": 3}
    assert rolled.groups == ["net.0", "net.1", "net.2"]
    assert tree.groups["net"].groups == ["net.0…2", "net.3", "net.4"]
    assert tree.path("net.1") == ("net", "net.0…2", "net.1")
    assert set(tree.open_at_first()) == set(tree.groups) - {"net.0…2"}


def test_thousands_of_nodes_in_one_place_stand_in_parts():
    few, many = (module_groups(chain(n)) for n in (1500, 1730))
    assert not few.groups
    ends = [many.groups[r].label for r in many.roots[::17]]
    assert ends == ["nodes 1 to 100", "nodes 1,701 to 1,730"]
    assert sum(many.groups[r].nodes for r in many.roots) == 1730
    huge = module_groups(chain(10_150))
    assert [huge.groups[r].nodes for r in huge.roots] == [10_000, 150]
    assert huge.path(huge.group_of["n10120"]) == ("/10001…10150", "/10101…10150")


@few
@given(graphs())
def test_every_node_stands_in_one_group(graph):
    tree = module_groups(graph)
    members = Counter(m for g in tree.groups.values() for m in g.members)
    assert set(tree.group_of) == set(graph.by_id)
    assert members == Counter(n for n, g in tree.group_of.items() if g)
    assert all(tree.group_of[m] == g.id for g in tree.groups.values() for m in g.members)
    for g in tree.groups.values():
        inside = [tree.groups[child].nodes for child in g.groups]
        assert g.nodes == len(g.members) + sum(inside) >= 2
        assert tree.path(g.id)[-1] == g.id
    everything = sum(tree.groups[root].nodes for root in tree.roots)
    assert everything + sum(not g for g in tree.group_of.values()) == len(graph)


@few
@given(graphs(), st.integers(1, 30))
def test_folding_constants_keeps_every_other_edge(graph, fewer_than):
    folded = fold_constants(graph, fewer_than)
    folded.validate()
    gone = set(graph.by_id) - set(folded.by_id)
    assert all(graph.by_id[i].kind is Kind.CONSTANT for i in gone)
    assert not gone & set(graph.outputs)
    for node in folded.nodes:
        before = graph.by_id[node.id].inputs
        assert len(node.inputs) == len(before)
        for old, new in zip(before, node.inputs, strict=True):
            assert new == old or (old in gone and isinstance(new, Literal))
