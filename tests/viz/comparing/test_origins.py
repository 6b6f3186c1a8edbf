"""Where nodes come from and go to, on graphs small enough to say what is right."""

import pytest

from graphs import graph_of, group
from relascope.core.identity import carry_identity
from relascope.viz.compare.origins import MOST, origins


def found(before, after):
    """By the node's id (those of `after` as they were) what was found of it, in words."""
    matched = carry_identity(before, after)
    named = {new: old for old, new in matched.renamed.items()}
    rows = origins(before, matched)
    touched = matched.added | matched.removed | matched.changed
    assert sorted(o.id for o in rows) == sorted(touched)
    said = (" ".join([o.what, o.how.name, *o.nodes, *(() if o.sure else "?")]) for o in rows)
    ids = (o.id if o.what == "removed" else named[o.id] for o in rows)
    return dict(zip(ids, said, strict=True))


EXP_LOG = graph_of("f.x; f.1 exp f.x; f.2 log f.1")
FUSED = graph_of(["x", group("f", "exp+log", "x", EXP_LOG), "c sum f"])
SIN_COS = group("f", "sin+cos", "x", graph_of("f.x; f.1 sin f.x; f.2 cos f.1"))
WEIGHED = graph_of("x; s#1; m multiply x s; b#2; a add m b; w#3; c conv a w <aten::conv")

ORIGINS = {
    "equal nodes are merged and so is what reads them": (
        "x; a exp x; b exp x; c log a; d log b; e add c d",
        "x; 1 exp x; 2 log 1; 3 add 2 2",
        {"b": "removed MERGED a", "d": "removed MERGED c", "3": "changed CHANGED"},
    ),
    "equal constants are merged, too": (
        "x; k#1; k2#1; a negative k; b negative k2; c f x a; d g c b",
        "x; k#1; a negative k; c f x a; d g c a",
        {"b": "removed MERGED a"},
    ),
    "a constant that was computed names all that went into it": (
        "x; w#1; t transpose w; u exp t; m matmul x u @linear <aten::linear",
        "x; k#2; 1 matmul x k @linear <aten::linear",
        {"w t u": "removed FOLDED k", "k": "added FOLDS u w t"},
    ),
    "scales that a weight took over were folded into it": (
        "x; w#1; s#2; t#3; c conv x w <aten::conv; d divide c s; m multiply d t;"
        " r relu m <aten::relu",
        "x; k#4; 1 conv x k <aten::conv; 2 relu 1 <aten::relu",
        {"w": "removed FOLDED k", "d m s t": "removed FOLDED k ?", "k": "added FOLDS w s t d m"},
    ),
    "a value that is read beside another weight is not sure to be the same": (
        WEIGHED,
        "x; k#4; 1 add x k; v#5; 2 conv 1 v <aten::conv",
        {"a": "removed REPLACED 1 ?"},
    ),
    "where the weight is as it was, it is": (
        WEIGHED,
        "x; k#4; 1 add x k; v#3; 2 conv 1 v <aten::conv",
        {"a": "removed REPLACED 1"},
    ),
    "a view left out names what is read now": (
        "x; z zeros; a exp x; b add a z; c log b <aten::log",
        "x; 1 exp x; 2 log 1 <aten::log",
        {"b": "removed LEFT_OUT a", "z": "removed DEAD"},
    ),
    "a node spelled out is replaced by its last and all come from it": (
        "x; g nn.gelu x <aten::gelu; r log g <aten::log",
        "x; h#1; 1 erf x; 2 multiply x h; 3 multiply 1 2; 4 log 3 <aten::log",
        {"g": "removed REPLACED 3", "h 1 2 3": "added REPLACES g"},
    ),
    "nodes that are joined are named by all that join them": (
        graph_of(
            "x; p!; q!; a matmul x p; b matmul x q; c exp a <aten::exp; d log b <aten::log -> c d"
        ),
        graph_of(
            "x; p!; q!; 1 concat p q :2x9; 2 matmul x 1 :2x9; 3 slice 2 at=0; 4 slice 2 at=1;"
            " 5 exp 3 <aten::exp; 6 log 4 <aten::log -> 5 6"
        ),
        {"a": "removed REPLACED 3", "b": "removed REPLACED 4", "1 2": "added REPLACES a b"},
    ),
    "operators that become kernels are paired one by one": (
        "x; a add x x; s nn.softmax a; b add s x; t nn.tanh b",
        "x; 1 add1 x x; 2 softmax 1; 3 add2 2 x; 4 tir_tanh 3",
        {a: f"removed REPLACED {b}" for a, b in ("a1", "s2", "b3", "t4")}
        | {b: f"added REPLACES {a}" for a, b in ("a1", "s2", "b3", "t4")},
    ),
    "fusing names what is fused": ("x; a exp x; b log a; c sum b", FUSED, {"f": "added FUSES a b"}),
    "a kernel names the function that it was": (
        FUSED,
        "x; k fused_exp_log x; c sum k",
        {"f f.1 f.2": "removed MOVED k", "k": "added REPLACES f f.1 f.2"},
    ),
    "a new group names its nodes": (
        "x; a exp x",
        graph_of(["x", SIN_COS]),
        {"f": "added FUSES f.1 f.2 ?"},
    ),
    "what is put between names what it stands behind": (
        "x; a exp x; b log a <aten::log",
        "x; 1 exp x; 2 cast 1; 3 log 2 <aten::log",
        {"2": "added INSERTED a"},
    ),
    "the backward names the forward and new arguments say so": (
        "x; a exp x @m <aten::exp",
        graph_of(
            "x; a exp x @m <aten::exp; g=grad_out; 1 multiply g a @m <gradient~of~aten::exp -> a 1"
        ),
        {"g": "added ARGUMENT", "1": "added GRADIENT a"},
    ),
    "what only its place tells is not sure": (
        "x; a exp x; b sum a",
        graph_of("x; 1 reshape x :2x9; 2 mean 1; 3 sin x", "2 3"),
        {"b": "removed REPLACED 2 ?"},
    ),
}


@pytest.mark.parametrize("name", ORIGINS)
def test_nodes_name_what_they_came_from_or_went_to(name):
    *graphs, expected = ORIGINS[name]
    rows = found(*(graph_of(g) if isinstance(g, str) else g for g in graphs))
    wanted = {ident: words for idents, words in expected.items() for ident in idents.split()}
    assert {ident: rows.get(ident) for ident in wanted} == wanted


def test_what_nothing_reads_is_dead():
    before = graph_of("x; a exp x; b log a; c sin x", "c")
    assert found(before, graph_of("x; 1 sin x")) == dict.fromkeys("ab", "removed DEAD")
    # Fusing touches the function alone.
    assert [*found(graph_of("x; a exp x; b log a; c sum b"), FUSED)] == ["f"]


def test_a_change_says_what_is_different():
    before, after = (graph_of(f"x; a exp x; {b} sum a axis={n}") for n, b in enumerate("b1"))
    (row,) = origins(before, carry_identity(before, after))
    assert (row.id, row.what, row.detail) == ("b", "changed", "axis: 0 → 1")


def test_a_long_chain_is_no_recursion_and_names_stay_few():
    length = 5000

    def chain(op):
        rest = (f"; {op}{i} {op} {op}{i - 1} i={i}" for i in range(1, length))
        return graph_of(f"x; {op}0 {op} x i=0" + "".join(rest))

    rows = found(chain("exp"), chain("log"))
    assert len(rows) == 2 * length
    assert all(len(words.split()) - 2 <= MOST + 1 for words in rows.values())
