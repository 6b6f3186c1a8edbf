"""Where nodes come from and go to, on graphs small enough to say what is right."""

from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.core.identity import carry_identity
from relascope.viz.compare.origins import MOST, How, origins

T = TensorType((2, 3), "float32")
WIDE = TensorType((2, 9), "float32")


def call(ident, op, *inputs, scope="", source="", outputs=(T,), attrs=None):
    return Node(ident, Kind.CALL, op, "", attrs or {}, inputs, outputs, scope, source)


def var(ident, name="", kind=Kind.INPUT):
    return Node(ident, kind, name=name or ident, outputs=(T,))


def constant(ident, digest):
    return Node(ident, Kind.CONSTANT, attrs={"digest": digest}, outputs=(T,))


def graph(*nodes, outputs=None):
    inputs = [n.id for n in nodes if n.kind in (Kind.INPUT, Kind.PARAMETER)]
    made = Graph("main", "relay", nodes, tuple(inputs), tuple(outputs or [nodes[-1].id]))
    made.validate()
    return made


def found(before, after):
    """By the node's id (those of `after` as they were) what was found of it."""
    matched = carry_identity(before, after)
    named = {new: old for old, new in matched.renamed.items()}
    rows = origins(before, matched)
    touched = matched.added | matched.removed | matched.changed
    assert sorted(o.id for o in rows) == sorted(touched)
    return {
        o.id if o.what == "removed" else named[o.id]: (o.what, o.how, o.nodes, o.sure) for o in rows
    }


def test_equal_nodes_are_merged_and_so_is_what_reads_them():
    before = graph(
        var("x"),
        call("a", "exp", "x"),
        call("b", "exp", "x"),
        call("c", "log", "a"),
        call("d", "log", "b"),
        call("e", "add", "c", "d"),
    )
    after = graph(
        var("x"), call("1", "exp", "x"), call("2", "log", "1"), call("3", "add", "2", "2")
    )
    rows = found(before, after)
    assert rows["b"] == ("removed", How.MERGED, ("a",), True)
    assert rows["d"] == ("removed", How.MERGED, ("c",), True)
    assert rows["3"][:2] == ("changed", How.CHANGED)


def test_what_reads_equal_constants_is_equal():
    before = graph(
        var("x"),
        constant("k", "1"),
        constant("k2", "1"),
        call("a", "negative", "k"),
        call("b", "negative", "k2"),
        call("c", "f", "x", "a"),
        call("d", "g", "c", "b"),
    )
    after = graph(
        var("x"),
        constant("k", "1"),
        call("a", "negative", "k"),
        call("c", "f", "x", "a"),
        call("d", "g", "c", "a"),
    )
    assert found(before, after)["b"] == ("removed", How.MERGED, ("a",), True)


def test_a_constant_that_was_computed_names_all_that_went_into_it():
    before = graph(
        var("x"),
        constant("w", "1"),
        call("t", "transpose", "w"),
        call("u", "exp", "t"),
        call("m", "matmul", "x", "u", scope="linear", source="aten::linear"),
    )
    after = graph(
        var("x"),
        constant("k", "2"),
        call("1", "matmul", "x", "k", scope="linear", source="aten::linear"),
    )
    rows = found(before, after)
    for ident in ("w", "t", "u"):
        assert rows[ident] == ("removed", How.FOLDED, ("k",), True)
    assert rows["k"][:2] == ("added", How.FOLDS)
    assert set(rows["k"][2]) == {"w", "t", "u"}


def test_scales_that_a_weight_took_over_were_folded_into_it():
    before = graph(
        var("x"),
        constant("w", "1"),
        constant("s", "2"),
        constant("t", "3"),
        call("c", "conv", "x", "w", source="aten::conv"),
        call("d", "divide", "c", "s"),
        call("m", "multiply", "d", "t"),
        call("r", "relu", "m", source="aten::relu"),
    )
    after = graph(
        var("x"),
        constant("k", "4"),
        call("1", "conv", "x", "k", source="aten::conv"),
        call("2", "relu", "1", source="aten::relu"),
    )
    rows = found(before, after)
    assert rows["w"] == ("removed", How.FOLDED, ("k",), True)
    for ident in ("d", "m", "s", "t"):
        assert rows[ident] == ("removed", How.FOLDED, ("k",), False)
    assert set(rows["k"][2]) == {"w", "d", "m", "s", "t"}


def test_a_value_that_is_read_beside_another_weight_is_not_sure_to_be_the_same():
    before = graph(
        var("x"),
        constant("s", "1"),
        call("m", "multiply", "x", "s"),
        constant("b", "2"),
        call("a", "add", "m", "b"),
        constant("w", "3"),
        call("c", "conv", "a", "w", source="aten::conv"),
    )

    def after(weight):
        return graph(
            var("x"),
            constant("k", "4"),
            call("1", "add", "x", "k"),
            constant("v", weight),
            call("2", "conv", "1", "v", source="aten::conv"),
        )

    rows = found(before, after("5"))
    assert rows["a"] == ("removed", How.REPLACED, ("1",), False)
    # Where the weight is as it was, it is.
    assert found(before, after("3"))["a"] == ("removed", How.REPLACED, ("1",), True)


def test_what_nothing_reads_is_dead():
    before = graph(
        var("x"), call("a", "exp", "x"), call("b", "log", "a"), call("c", "sin", "x"), outputs=["c"]
    )
    rows = found(before, graph(var("x"), call("1", "sin", "x")))
    assert rows == {i: ("removed", How.DEAD, (), True) for i in "ab"}


def test_a_view_that_is_left_out_names_what_its_readers_read_now():
    before = graph(
        var("x"),
        call("z", "zeros"),
        call("a", "exp", "x"),
        call("b", "add", "a", "z"),
        call("c", "log", "b", source="aten::log"),
    )
    after = graph(var("x"), call("1", "exp", "x"), call("2", "log", "1", source="aten::log"))
    rows = found(before, after)
    assert rows["b"] == ("removed", How.LEFT_OUT, ("a",), True)
    assert rows["z"] == ("removed", How.DEAD, (), True)


def test_a_node_spelled_out_is_replaced_by_its_last_and_all_come_from_it():
    before = graph(
        var("x"),
        call("g", "nn.gelu", "x", source="aten::gelu"),
        call("r", "log", "g", source="aten::log"),
    )
    after = graph(
        var("x"),
        constant("h", "1"),
        call("1", "erf", "x"),
        call("2", "multiply", "x", "h"),
        call("3", "multiply", "1", "2"),
        call("4", "log", "3", source="aten::log"),
    )
    rows = found(before, after)
    assert rows["g"] == ("removed", How.REPLACED, ("3",), True)
    for ident in ("h", "1", "2", "3"):
        assert rows[ident] == ("added", How.REPLACES, ("g",), True)


def test_nodes_that_are_joined_are_named_by_all_that_join_them():
    before = graph(
        var("x"),
        var("p", kind=Kind.PARAMETER),
        var("q", kind=Kind.PARAMETER),
        call("a", "matmul", "x", "p"),
        call("b", "matmul", "x", "q"),
        call("c", "exp", "a", source="aten::exp"),
        call("d", "log", "b", source="aten::log"),
        outputs=["c", "d"],
    )
    after = graph(
        var("x"),
        var("p", kind=Kind.PARAMETER),
        var("q", kind=Kind.PARAMETER),
        call("1", "concat", "p", "q", outputs=(WIDE,)),
        call("2", "matmul", "x", "1", outputs=(WIDE,)),
        call("3", "slice", "2", attrs={"at": 0}),
        call("4", "slice", "2", attrs={"at": 1}),
        call("5", "exp", "3", source="aten::exp"),
        call("6", "log", "4", source="aten::log"),
        outputs=["5", "6"],
    )
    rows = found(before, after)
    assert rows["a"] == ("removed", How.REPLACED, ("3",), True)
    assert rows["b"] == ("removed", How.REPLACED, ("4",), True)
    assert set(rows["2"][2]) == set(rows["1"][2]) == {"a", "b"}


def test_operators_that_become_kernels_are_paired_one_by_one():
    before = graph(
        var("x"),
        call("a", "add", "x", "x"),
        call("s", "nn.softmax", "a"),
        call("b", "add", "s", "x"),
        call("t", "nn.tanh", "b"),
    )
    after = graph(
        var("x"),
        call("1", "add1", "x", "x"),
        call("2", "softmax", "1"),
        call("3", "add2", "2", "x"),
        call("4", "tir_tanh", "3"),
    )
    rows = found(before, after)
    for old, new in zip("asbt", "1234", strict=True):
        assert rows[old][:3] == ("removed", How.REPLACED, (new,))
        assert rows[new][:3] == ("added", How.REPLACES, (old,))
    assert [rows[i][3] for i in "asbt"] == [True, True, True, True]  # the last is the result


def body(*nodes, outputs):
    return Graph("f", "relax", nodes, ("f.x",), outputs)


def test_fusing_names_what_is_fused_and_a_kernel_the_function_that_it_was():
    loose = graph(var("x"), call("a", "exp", "x"), call("b", "log", "a"), call("c", "sum", "b"))
    inside = body(
        var("f.x"), call("f.1", "exp", "f.x"), call("f.2", "log", "f.1"), outputs=("f.2",)
    )
    fused = graph(
        var("x"),
        Node("f", Kind.FUNCTION, "exp+log", inputs=("x",), outputs=(T,), body=inside),
        call("c", "sum", "f"),
    )
    assert found(loose, fused) == {"f": ("added", How.FUSES, ("a", "b"), True)}
    kernel = graph(var("x"), call("k", "fused_exp_log", "x"), call("c", "sum", "k"))
    rows = found(fused, kernel)
    for ident in ("f", "f.1", "f.2"):
        assert rows[ident] == ("removed", How.MOVED, ("k",), True)
    assert rows["k"][:2] == ("added", How.REPLACES)
    assert set(rows["k"][2]) == {"f", "f.1", "f.2"}


def test_the_backward_names_the_forward_and_new_arguments_say_so():
    before = graph(var("x"), call("a", "exp", "x", scope="m", source="aten::exp"))
    after = graph(
        var("x"),
        call("a", "exp", "x", scope="m", source="aten::exp"),
        var("g", "grad_out"),
        call("1", "multiply", "g", "a", scope="m", source="gradient of aten::exp"),
        outputs=["a", "1"],
    )
    rows = found(before, after)
    assert rows["g"] == ("added", How.ARGUMENT, (), True)
    assert rows["1"] == ("added", How.GRADIENT, ("a",), True)


def test_what_is_put_between_names_what_it_stands_behind():
    before = graph(var("x"), call("a", "exp", "x"), call("b", "log", "a", source="aten::log"))
    after = graph(
        var("x"),
        call("1", "exp", "x"),
        call("2", "cast", "1"),
        call("3", "log", "2", source="aten::log"),
    )
    assert found(before, after)["2"] == ("added", How.INSERTED, ("a",), True)


def test_what_only_its_place_tells_is_not_sure():
    before = graph(var("x"), call("a", "exp", "x"), call("b", "sum", "a"))
    after = graph(
        var("x"),
        call("1", "reshape", "x", outputs=(WIDE,)),
        call("2", "mean", "1"),
        call("3", "sin", "x"),
        outputs=["2", "3"],
    )
    rows = found(before, after)
    assert rows["b"][:2] == ("removed", How.REPLACED)
    assert rows["b"][3] is False


def test_a_change_says_what_is_different():
    before = graph(var("x"), call("a", "exp", "x"), call("b", "sum", "a", attrs={"axis": 0}))
    after = graph(var("x"), call("a", "exp", "x"), call("1", "sum", "a", attrs={"axis": 1}))
    (row,) = origins(before, carry_identity(before, after))
    assert (row.id, row.what, row.detail) == ("b", "changed", "axis: 0 → 1")


def test_a_long_chain_is_no_recursion_and_names_stay_few():
    length = 5000

    def chain(op):
        nodes = [var("x")]
        nodes += [
            call(f"{op}{i}", op, f"{op}{i - 1}" if i else "x", attrs={"i": i})
            for i in range(length)
        ]
        return graph(*nodes)

    rows = found(chain("exp"), chain("log"))
    assert len(rows) == 2 * length
    assert all(len(nodes) <= MOST for _, _, nodes, _ in rows.values())
