"""Where nodes come from and go to, on graphs small enough to say what is right."""

from graphs import graph_of, group
from relascope.core.identity import carry_identity
from relascope.viz.compare.origins import MOST, How, origins


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
    before = graph_of("x; a exp x; b exp x; c log a; d log b; e add c d")
    after = graph_of("x; 1 exp x; 2 log 1; 3 add 2 2")
    rows = found(before, after)
    assert rows["b"] == ("removed", How.MERGED, ("a",), True)
    assert rows["d"] == ("removed", How.MERGED, ("c",), True)
    assert rows["3"][:2] == ("changed", How.CHANGED)
    before = graph_of("x; k#1; k2#1; a negative k; b negative k2; c f x a; d g c b")
    after = graph_of("x; k#1; a negative k; c f x a; d g c a")
    assert found(before, after)["b"] == ("removed", How.MERGED, ("a",), True)


def test_a_constant_that_was_computed_names_all_that_went_into_it():
    before = graph_of("x; w#1; t transpose w; u exp t; m matmul x u @linear <aten::linear")
    after = graph_of("x; k#2; 1 matmul x k @linear <aten::linear")
    rows = found(before, after)
    for ident in ("w", "t", "u"):
        assert rows[ident] == ("removed", How.FOLDED, ("k",), True)
    assert rows["k"][:2] == ("added", How.FOLDS)
    assert set(rows["k"][2]) == {"w", "t", "u"}


def test_scales_that_a_weight_took_over_were_folded_into_it():
    before = graph_of(
        "x; w#1; s#2; t#3; c conv x w <aten::conv; d divide c s; m multiply d t;"
        " r relu m <aten::relu"
    )
    after = graph_of("x; k#4; 1 conv x k <aten::conv; 2 relu 1 <aten::relu")
    rows = found(before, after)
    assert rows["w"] == ("removed", How.FOLDED, ("k",), True)
    for ident in ("d", "m", "s", "t"):
        assert rows[ident] == ("removed", How.FOLDED, ("k",), False)
    assert set(rows["k"][2]) == {"w", "d", "m", "s", "t"}


def test_a_value_that_is_read_beside_another_weight_is_not_sure_to_be_the_same():
    before = graph_of("x; s#1; m multiply x s; b#2; a add m b; w#3; c conv a w <aten::conv")

    def after(weight):
        return graph_of(f"x; k#4; 1 add x k; v#{weight}; 2 conv 1 v <aten::conv")

    rows = found(before, after("5"))
    assert rows["a"] == ("removed", How.REPLACED, ("1",), False)
    # Where the weight is as it was, it is.
    assert found(before, after("3"))["a"] == ("removed", How.REPLACED, ("1",), True)


def test_what_nothing_reads_is_dead_and_a_view_left_out_names_what_is_read_now():
    before = graph_of("x; a exp x; b log a; c sin x", "c")
    rows = found(before, graph_of("x; 1 sin x"))
    assert rows == {i: ("removed", How.DEAD, (), True) for i in "ab"}
    before = graph_of("x; z zeros; a exp x; b add a z; c log b <aten::log")
    after = graph_of("x; 1 exp x; 2 log 1 <aten::log")
    rows = found(before, after)
    assert rows["b"] == ("removed", How.LEFT_OUT, ("a",), True)
    assert rows["z"] == ("removed", How.DEAD, (), True)


def test_a_node_spelled_out_is_replaced_by_its_last_and_all_come_from_it():
    before = graph_of("x; g nn.gelu x <aten::gelu; r log g <aten::log")
    after = graph_of("x; h#1; 1 erf x; 2 multiply x h; 3 multiply 1 2; 4 log 3 <aten::log")
    rows = found(before, after)
    assert rows["g"] == ("removed", How.REPLACED, ("3",), True)
    for ident in ("h", "1", "2", "3"):
        assert rows[ident] == ("added", How.REPLACES, ("g",), True)


def test_nodes_that_are_joined_are_named_by_all_that_join_them():
    before = graph_of(
        "x; p!; q!; a matmul x p; b matmul x q; c exp a <aten::exp; d log b <aten::log", "c d"
    )
    after = graph_of(
        "x; p!; q!; 1 concat p q :2x9; 2 matmul x 1 :2x9; 3 slice 2 at=0;"
        " 4 slice 2 at=1; 5 exp 3 <aten::exp; 6 log 4 <aten::log",
        "5 6",
    )
    rows = found(before, after)
    assert rows["a"] == ("removed", How.REPLACED, ("3",), True)
    assert rows["b"] == ("removed", How.REPLACED, ("4",), True)
    assert set(rows["2"][2]) == set(rows["1"][2]) == {"a", "b"}


def test_operators_that_become_kernels_are_paired_one_by_one():
    before = graph_of("x; a add x x; s nn.softmax a; b add s x; t nn.tanh b")
    after = graph_of("x; 1 add1 x x; 2 softmax 1; 3 add2 2 x; 4 tir_tanh 3")
    rows = found(before, after)
    for old, new in zip("asbt", "1234", strict=True):
        assert rows[old][:3] == ("removed", How.REPLACED, (new,))
        assert rows[new][:3] == ("added", How.REPLACES, (old,))
    assert [rows[i][3] for i in "asbt"] == [True, True, True, True]  # the last is the result


def test_fusing_names_what_is_fused_and_a_kernel_the_function_that_it_was():
    loose = graph_of("x; a exp x; b log a; c sum b")
    inside = graph_of("f.x; f.1 exp f.x; f.2 log f.1")
    fused = graph_of(["x", group("f", "exp+log", "x", inside), "c sum f"])
    assert found(loose, fused) == {"f": ("added", How.FUSES, ("a", "b"), True)}
    kernel = graph_of("x; k fused_exp_log x; c sum k")
    rows = found(fused, kernel)
    for ident in ("f", "f.1", "f.2"):
        assert rows[ident] == ("removed", How.MOVED, ("k",), True)
    assert rows["k"][:2] == ("added", How.REPLACES)
    assert set(rows["k"][2]) == {"f", "f.1", "f.2"}


def test_a_new_group_names_its_nodes_and_what_is_put_between_what_it_stands_behind():
    inside = graph_of("f.x; f.1 sin f.x; f.2 cos f.1")
    after = graph_of(["x", group("f", "sin+cos", "x", inside)])
    assert found(graph_of("x; a exp x"), after)["f"] == ("added", How.FUSES, ("f.1", "f.2"), False)
    before = graph_of("x; a exp x; b log a <aten::log")
    after = graph_of("x; 1 exp x; 2 cast 1; 3 log 2 <aten::log")
    assert found(before, after)["2"] == ("added", How.INSERTED, ("a",), True)


def test_the_backward_names_the_forward_and_new_arguments_say_so():
    before = graph_of("x; a exp x @m <aten::exp")
    after = graph_of(
        "x; a exp x @m <aten::exp; g=grad_out; 1 multiply g a @m <gradient~of~aten::exp", "a 1"
    )
    rows = found(before, after)
    assert rows["g"] == ("added", How.ARGUMENT, (), True)
    assert rows["1"] == ("added", How.GRADIENT, ("a",), True)


def test_what_only_its_place_tells_is_not_sure():
    before = graph_of("x; a exp x; b sum a")
    after = graph_of("x; 1 reshape x :2x9; 2 mean 1; 3 sin x", "2 3")
    rows = found(before, after)
    assert rows["b"][:2] == ("removed", How.REPLACED)
    assert rows["b"][3] is False


def test_a_change_says_what_is_different():
    before = graph_of("x; a exp x; b sum a axis=0")
    after = graph_of("x; a exp x; 1 sum a axis=1")
    (row,) = origins(before, carry_identity(before, after))
    assert (row.id, row.what, row.detail) == ("b", "changed", "axis: 0 → 1")


def test_a_long_chain_is_no_recursion_and_names_stay_few():
    length = 5000

    def chain(op):
        rest = (f"; {op}{i} {op} {op}{i - 1} i={i}" for i in range(1, length))
        return graph_of(f"x; {op}0 {op} x i=0" + "".join(rest))

    rows = found(chain("exp"), chain("log"))
    assert len(rows) == 2 * length
    assert all(len(nodes) <= MOST for _, _, nodes, _ in rows.values())
