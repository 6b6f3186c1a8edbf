"""Memory plans of small functions, by hand."""

from graphs import graph_of
from relascope.core.graph import Graph, Kind
from relascope.passes.peak_memory import plan


def graph(text, outputs=""):
    return graph_of(text, outputs, ir="relax", of="10")


def chain(*sizes):
    last = f"; f0 exp x :{sizes[1]}"
    rest = (f"; f{i} exp f{i - 1} :{s}" for i, s in enumerate(sizes[2:], 1))
    return graph(f"x :{sizes[0]}" + last + "".join(rest))


def kernels(g):
    return [(n.id,) for n in g if n.kind is Kind.CALL]


def test_a_chain_takes_two_storages_in_turn_and_its_result():
    g = chain(10, 10, 10, 10, 10, 10)
    assert (plan(g, kernels(g)).between, plan(g, kernels(g)).results) == (80, 40)


def test_what_is_computed_within_one_kernel_takes_none():
    g = chain(10, 10, 10, 10)
    assert plan(g, [("f0", "f1", "f2")]).bytes == 40


def test_a_storage_grows_to_what_it_must_hold_but_not_beyond_16_times():
    g = chain(1, 10, 10, 20, 5)  # f0 and f1 in turn, f2 in f0's, grown
    assert plan(g, kernels(g)).between == 40 + 80
    g = chain(1, 1, 1, 1000, 5)
    assert plan(g, kernels(g)).between == 4 + 4 + 4000


def test_views_tuples_and_items_hold_what_they_are_of():
    g = graph(
        "x; a exp x; v reshape a :5x2; b exp x; t () v b; c tanh x; d concatenate t :20;"
        " e add c d :20"
    )
    # a, b and c live when d is made: nothing may have been given away before.
    found = plan(g, [("a",), ("b",), ("c",), ("d",), ("e",)])
    assert (found.between, found.results) == (40 + 40 + 40 + 80, 80)


def test_a_result_that_is_read_on_is_counted_once_and_kept():
    g = graph("x; a exp x; b exp a", "a b")
    assert plan(g, [("a",), ("b",)]).bytes == plan(g, [("a",), ("b",)]).results == 80


def test_scratch_serves_the_next_kernel_and_is_free_then():
    g = chain(10, 10, 10)
    assert plan(g, [(), ("f0",), ("f1",)], [40, 0, 0]).between == 80
    assert plan(g, [(), ("f0",), (), ("f1",)], [40, 0, 40, 0]).between == 80


def test_relay_lays_its_results_where_others_were():
    g = chain(10, 10, 10, 10, 10)
    relay = Graph("main", "relay", g.nodes, g.inputs, g.outputs)
    assert plan(g, kernels(g)).bytes == 120
    assert (plan(relay, kernels(relay)).bytes, plan(relay, kernels(relay)).results) == (80, 40)
