"""Every linter finds its hazard in a small graph, and nothing where there is none."""

from dataclasses import replace

import pytest

from graphs import graph_of
from relascope.core.graph import Graph, Role
from relascope.passes.catalogue import CATALOGUE, read_pipeline
from relascope.passes.lint import LINTERS, lint
from relascope.passes.lint.remedies import REMEDIES, with_remedy


def found(g: Graph, *args, **kwargs):
    return {(f.hazard, f.nodes[0], f.remedy) for f in lint(g, *args, **kwargs)}


def hazards(g: Graph, *args, **kwargs):
    return {f.hazard for f in lint(g, *args, **kwargs)}


@pytest.mark.parametrize("ir", sorted(REMEDIES))
def test_every_remedy_is_in_the_catalogue(ir):
    for remedy in REMEDIES[ir].values():
        assert all((ir, s.name) in CATALOGUE for s in read_pipeline(ir, remedy))


def transposed(ir="relax", axes=(0, 2, 1), read="matmul"):
    """A product p of x and of t, which is y in another order of axes."""
    name = "transpose" if ir == "relay" else "permute_dims"
    shape, order = "x".join(str((3, 7, 5)[a]) for a in axes), ",".join(map(str, axes))
    text = f"x :3x4x5; y :3x7x5; t {name} y axes=[{order}] :{shape}; p {read} x t :3x4x7"
    return graph_of(text, ir=ir)


def test_a_matrix_written_out_transposed_for_a_product_is_found_unless_it_costs_nothing():
    g = transposed()
    assert found(g) == {("transposes", "t", "fuse_transpose_matmul")}
    (finding,) = lint(g)
    assert finding.bytes == 2 * 3 * 7 * 5 * 4
    assert finding.operators == ("permute_dims", "matmul")
    assert not finding.measured
    g = transposed()
    assert not found(g, target="llvm -libs=blas")
    assert "transposes" in hazards(g, kernels=[("t",), ("p",)])
    assert "transposes" not in hazards(g, kernels=[("p",)])  # its reader takes it along
    assert not found(transposed(axes=(1, 2, 0)))


def test_relay_has_no_pass_for_a_matrix_that_is_no_weight_and_says_what_helps():
    (finding,) = lint(transposed("relay", read="nn.batch_matmul"))
    assert (finding.hazard, finding.nodes[0], finding.remedy) == ("transposes", "t", "")
    assert "-libs=" in finding.advice


@pytest.mark.parametrize(
    ("ir", "op", "remedy"),
    [("relay", "transpose", "simplify_expr"), ("relax", "permute_dims", "transpose_dedup")],
)
def test_a_transpose_of_a_transpose(ir, op, remedy):
    text = f"x; a {op} x axes=[1,0,2] :3x2x4; b {op} a axes=[1,0,2]; c nn.relu b"
    g = graph_of(text, ir=ir, of="2x3x4")
    (finding,) = lint(g)
    assert (finding.nodes, finding.remedy) == (("b", "a"), remedy)
    assert "undoes" in finding.message
    assert finding.bytes == 4 * 2 * 3 * 4 * 4
    assert hazards(g, kernels=[("a", "b", "c")]) == {"tiny"}


THERE = "x; t layout_transform x src_layout='NCHW' dst_layout='NHWC' :1x4x4x8"
BACK = "b layout_transform t src_layout='NHWC' dst_layout='NCHW'"
PRODUCT = "x :4x4; y :4x4; p matmul x y :4x4; t permute_dims p :4x4"
WIDE, OTHER = "[[0,0],[0,0],[1,1],[1,1]]", "[[0,0],[1,1],[0,0],[0,0]]"


def scaled(shape):
    conv = "conv nn.conv2d x w data_layout='NCHW' :1x5x8x8"
    return f"x; w#w :5x3x1x1; {conv}; s#s :{shape}; m multiply conv s :1x5x8x8"


def padded(width, value):
    padding = f"z#{value} value='{value}' :; pad nn.pad x z pad_width={width} pad_mode='constant'"
    return f"x; w#w :5x3x3x3; {padding} :1x3x10x10; c nn.conv2d pad w data_layout='NCHW' :1x5x8x8"


def numbered(op, value):
    return f"x; c#{value} value='{value}' :; same {op}"


@pytest.mark.parametrize(
    ("text", "of", "expected"),
    [
        (PRODUCT, "relax", ("transposes", "t", "transpose_of_matmul")),
        (f"{PRODUCT} -> t p", "relax", None),  # the product itself is wanted, too
        (f"{THERE}; {BACK}", "1x8x4x4", ("layouts", "b", "simplify_expr")),
        (THERE, "1x8x4x4", None),
        ("x; c#c; v reshape c :16; r sqrt c; s add x r -> s v", "4x4", ("constants", "r", "fold")),
        (scaled("5x1x1"), "1x3x8x8", ("scales", "m", "fold_scale_axis")),
        (scaled("8x8"), "1x3x8x8", None),
        (padded(WIDE, "0.0"), "1x3x8x8", ("paddings", "pad", "fold_explicit_padding")),
        (padded(WIDE, "1.0"), "1x3x8x8", None),
        (padded(OTHER, "0.0"), "1x3x8x8", None),
        (numbered("add x c", 0.0), "4", ("no_ops", "same", "drop_zeros")),
        (numbered("multiply x c", 1.0), "4", ("no_ops", "same", "drop_ones")),
        (numbered("divide x c", 1.0), "4", ("no_ops", "same", "drop_ones")),
        (numbered("add x c", 1.0), "4", None),
        (numbered("multiply x c", 0.0), "4", None),
        (numbered("divide c x", 1.0), "4", None),  # one over x is something
    ],
)
def test_a_hazard_is_found_where_it_is_one_and_nowhere_else(text, of, expected):
    graph = graph_of(text, ir="relax") if of == "relax" else graph_of(text, of=of)
    assert found(graph) == ({expected} if expected else set())


HALF = "x; half cast x dtype='float16' :4/float16"


def test_casts_there_and_back_and_casts_to_the_own_type():
    more = "; back cast half dtype='float32'; idle cast back dtype='float32'; e exp idle"
    said = {f.nodes[0]: f for f in lint(graph_of(HALF + more, of="4"))}
    assert set(said) == {"back", "idle"}
    assert "restore the original type" in said["back"].message
    assert said["idle"].message == "This casts a float32 tensor to its own type."
    assert not found(graph_of(f"{HALF}; e exp half", of="4"))


def test_float64_in_a_narrower_model_is_named_where_it_begins():
    texts = {"x :4; wide cast x dtype='float64'; e exp wide": ["wide"], "x; e exp x": []}
    for text, expected in texts.items():
        said = [f for f in lint(graph_of(text, of="4/float64")) if "float64" in f.message]
        assert [f.nodes[0] for f in said] == expected


def test_work_on_weights_is_named_with_its_weight_and_the_passes():
    g = graph_of("x; w!layer.weight :4x4; t transpose w axes=[1,0] :4x4; d nn.dense x t")
    (finding,) = lint(g)
    assert (finding.hazard, finding.remedy) == ("constants", "bind|fold")
    assert "layer.weight" in finding.message
    assert "constants" not in hazards(replace(g, forward_outputs=1))  # its weight gets a gradient


def test_duplicates_by_what_they_read_and_not_by_chance_and_dead_code():
    g = graph_of("x; a exp x; b exp x; c negative a; d negative b", "c d")
    assert found(g) == {("duplicates", "b", "cse"), ("duplicates", "d", "cse")}
    masks = "x; a exp x; b nn.dropout x rate=0.1; c nn.dropout x rate=0.1"
    assert not found(graph_of(masks, "a b c"))
    (finding,) = lint(graph_of("x; alive exp x; dead exp x; end negative dead", "alive"))
    assert (finding.hazard, finding.nodes, finding.remedy) == ("dead", ("end", "dead"), "dce")


def parallel(ir, op, count, weight, mark="!"):
    weights = (f"; w{i}{mark}w{i} :{weight}; p{i} {op} x w{i} :2x6" for i in range(count))
    return lint(graph_of("x" + "".join(weights), " ".join(f"p{i}" for i in range(count)), ir=ir))


def test_products_of_one_operand():
    assert {f.remedy for f in parallel("relay", "nn.dense", 3, "6x4")} == {"combine_dense"}
    two = parallel("relay", "nn.dense", 2, "6x4")
    assert [f.remedy for f in two] == ["combine_dense(branches=2)"]
    bound = parallel("relax", "matmul", 2, "4x6", "#")
    assert [f.remedy for f in bound] == ["combine_matmul"]
    assert "before bind" in bound[0].advice
    assert not parallel("relay", "nn.dense", 1, "6x4")


def chain(elements):
    return graph_of("x; a exp x; b negative a; c sum b :1", of=str(elements))


def test_a_chain_of_kernels_that_could_be_one_and_the_same_fused():
    g = chain(100_000)
    each = [("a",), ("b",), ("c",)]
    assert found(g, kernels=each) == {("unfused", "a", "fuse"), ("unfused", "b", "fuse")}
    assert not found(g, kernels=[("a", "b", "c")])
    assert not found(g)  # what the kernels are is not known


def test_what_fusion_left_apart_is_told_where_it_was_timed_and_has_no_pass():
    g = chain(100_000)
    kernels = [("a", "b"), ("c",)]
    assert not found(g, kernels=kernels)
    (finding,) = lint(g, measured=[(k, 1e-3) for k in kernels])
    assert (finding.hazard, finding.remedy, finding.measured) == ("unfused", "", True)
    assert 0 < finding.seconds <= 1e-3


def test_tiny_kernels_together():
    g = chain(16)
    tiny = [f for f in lint(g, kernels=[("a",), ("b",), ("c",)]) if f.hazard == "tiny"]
    assert [(f.remedy, set(f.nodes)) for f in tiny] == [("fuse", {"a", "b"}), ("", {"c"})]
    assert "tiny" not in hazards(g, measured=[((i,), 1e-3) for i in "abc"])
    (one, _) = (f for f in lint(g, measured=[((i,), 2e-6) for i in "abc"]) if f.hazard == "tiny")
    assert one.seconds == pytest.approx(4e-6)


def test_what_the_backward_computes_again():
    g = graph_of("x; y; p matmul x y; g multiply p x -> p | g", ir="relax", of="64x64")
    g = g.with_nodes(replace(n, role={"g": Role.BACKWARD}.get(n.id, Role.FORWARD)) for n in g)
    timed = [(("p",), 1e-4), (("p", "g"), 2e-4)]
    (finding,) = lint(g, measured=timed, phases=["forward", "backward"])
    assert (finding.hazard, finding.nodes) == ("recomputed", ("p",))
    assert "--save p" in finding.advice
    once = [(("p",), 1e-4), (("g",), 2e-4)]
    assert not lint(g, measured=once, phases=["forward", "backward"])


def test_what_no_kernel_computes_the_build_has_removed():
    g = transposed()
    assert found(g, measured=[(("t",), 1e-3), (("p",), 1e-3)])
    assert not found(g, measured=[(("p",), 1e-3)])


def test_the_most_expensive_comes_first():
    g = graph_of("a :4; b :4096; z#0.0 value='0.0' :; s add a z :4; l add b z :4096", "s l")
    assert [f.nodes[0] for f in lint(g)] == ["l", "s"]


def test_long_chains_are_walked_without_recursion():
    rest = (f"; x{i} negative x{i - 1}; c{i} negative c{i - 1}" for i in range(1, 5_000))
    assert hazards(graph_of("x0; c0#c" + "".join(rest) + "; s add x4999 c4999")) == {"constants"}


@pytest.mark.parametrize(
    ("ir", "pipeline", "remedy", "expected"),
    [
        ("relax", "cse|bind|legalize", "combine_matmul", "cse|combine_matmul|bind|legalize"),
        ("relax", "cse|bind|fold|legalize", "dce", "cse|bind|fold|dce|legalize"),
        ("relay", "cse|fuse", "bind|fold", "cse|bind|fold|fuse"),
        ("relay", "cse", "fuse", "cse|fuse"),
        ("relay", "", "combine_dense(branches=2)", "combine_dense(branches=2)"),
    ],
)
def test_where_a_remedy_is_put(ir, pipeline, remedy, expected):
    assert str(with_remedy(ir, read_pipeline(ir, pipeline), remedy)) == expected


def test_every_linter_says_what_it_is():
    assert LINTERS
    for linter in LINTERS.values():
        assert linter.title and linter.summary.endswith(".")
