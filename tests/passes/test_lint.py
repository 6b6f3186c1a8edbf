"""Every linter finds its hazard in a small graph, and nothing where there is none."""

from __future__ import annotations

import pytest

from graphs import Builder
from relascope.core.graph import Graph, Kind, Role
from relascope.passes.catalogue import CATALOGUE, read_pipeline
from relascope.passes.lint import LINTERS, lint
from relascope.passes.lint.remedies import REMEDIES
from relascope.passes.lint.rules.adding import with_remedy


def graph(b: Builder, *outputs: str, ir: str = "relay", dead: bool = False, **fields) -> Graph:
    """What the outputs need of what was added so far; with `dead`, the rest, too."""
    made = b.graph(*outputs, **fields)
    kept = {*made.ancestors(outputs), *made.inputs}
    nodes = tuple(n for n in made.nodes if dead or n.id in kept)
    return Graph(made.name, ir, nodes, made.inputs, made.outputs, made.forward_outputs)


def found(g: Graph, *args, **kwargs):
    return {(f.hazard, f.nodes[0], f.remedy) for f in lint(g, *args, **kwargs)}


def hazards(g: Graph, *args, **kwargs):
    return {f.hazard for f in lint(g, *args, **kwargs)}


@pytest.mark.parametrize("ir", sorted(REMEDIES))
def test_every_remedy_is_in_the_catalogue(ir):
    for remedy in REMEDIES[ir].values():
        assert all((ir, s.name) in CATALOGUE for s in read_pipeline(ir, remedy))


def transposed(ir="relax", axes=(0, 2, 1), read="matmul"):
    b = Builder()
    x = b.add(Kind.INPUT, (3, 4, 5), name="x")
    y = b.add(Kind.INPUT, (3, 7, 5), name="y")
    name = "transpose" if ir == "relay" else "permute_dims"
    shape = tuple((3, 7, 5)[a] for a in axes)
    t = b.call(name, y, shape=shape, axes=list(axes))
    return graph(b, b.call(read, x, t, shape=(3, 4, 7)), ir=ir), t


def test_a_matrix_written_out_transposed_for_a_product_is_found():
    g, t = transposed()
    assert found(g) == {("transposes", t, "fuse_transpose_matmul")}
    (finding,) = lint(g)
    assert finding.bytes == 2 * 3 * 7 * 5 * 4
    assert finding.operators == ("permute_dims", "matmul")
    assert not finding.measured


def test_a_blas_reads_it_as_it_lies_and_a_kernel_that_does_more_is_no_copy_of_it():
    g, t = transposed()
    assert not found(g, target="llvm -libs=blas")
    product = g.outputs[0]
    assert "transposes" in hazards(g, kernels=[(t,), (product,)])
    assert "transposes" not in hazards(g, kernels=[(product,)])  # its reader takes it along


def test_other_orders_of_axes_are_no_transposed_matrix():
    assert not found(transposed(axes=(1, 2, 0))[0])


def test_relay_has_no_pass_for_a_matrix_that_is_no_weight_and_says_what_helps():
    g, t = transposed("relay", read="nn.batch_matmul")
    (finding,) = lint(g)
    assert (finding.hazard, finding.nodes[0], finding.remedy) == ("transposes", t, "")
    assert "-libs=" in finding.advice


@pytest.mark.parametrize(
    ("ir", "op", "remedy"),
    [("relay", "transpose", "simplify_expr"), ("relax", "permute_dims", "transpose_dedup")],
)
def test_a_transpose_of_a_transpose(ir, op, remedy):
    b = Builder()
    x = b.add(Kind.INPUT, (2, 3, 4), name="x")
    first = b.call(op, x, shape=(3, 2, 4), axes=[1, 0, 2])
    second = b.call(op, first, shape=(2, 3, 4), axes=[1, 0, 2])
    g = graph(b, b.call("nn.relu", second, shape=(2, 3, 4)), ir=ir)
    (finding,) = lint(g)
    assert (finding.nodes, finding.remedy) == ((second, first), remedy)
    assert "undoes" in finding.message
    assert finding.bytes == 4 * 2 * 3 * 4 * 4
    assert hazards(g, kernels=[(first, second, g.outputs[0])]) == {"tiny"}


def test_a_transposed_product_in_relax():
    b = Builder()
    x, y = (b.add(Kind.INPUT, (4, 4), name=n) for n in "xy")
    product = b.call("matmul", x, y, shape=(4, 4))
    turned = b.call("permute_dims", product, shape=(4, 4))
    assert found(graph(b, turned, ir="relax")) == {("transposes", turned, "transpose_of_matmul")}
    both = graph(b, turned, product, ir="relax")
    assert not found(both)  # the product itself is wanted, too


def test_layout_changes_in_a_row():
    b = Builder()
    x = b.add(Kind.INPUT, (1, 8, 4, 4), name="x")
    there = b.call("layout_transform", x, shape=(1, 4, 4, 8), src_layout="NCHW", dst_layout="NHWC")
    back = b.call(
        "layout_transform", there, shape=(1, 8, 4, 4), src_layout="NHWC", dst_layout="NCHW"
    )
    g = graph(b, back)
    assert found(g) == {("layouts", back, "simplify_expr")}
    assert not found(graph(b, there))


def cast(b, x, dtype, op="cast"):
    return b.add(Kind.CALL, (4,), (x,), op=op, dtype=dtype, attrs={"dtype": dtype})


def test_casts_there_and_back_and_casts_to_the_own_type():
    b = Builder()
    x = b.add(Kind.INPUT, (4,), name="x")
    half = cast(b, x, "float16")
    back = cast(b, half, "float32")
    idle = cast(b, back, "float32")
    g = graph(b, b.call("exp", idle, shape=(4,)))
    said = {f.nodes[0]: f for f in lint(g)}
    assert set(said) == {back, idle}
    assert "back where they began" in said[back].message
    assert said[idle].message == "It is cast to float32, which it is."
    assert not found(graph(b, b.call("exp", half, shape=(4,))))


@pytest.mark.parametrize(("dtype", "expected"), [("float32", True), ("float64", False)])
def test_float64_in_a_narrower_model_is_named_where_it_begins(dtype, expected):
    b = Builder()
    x = b.add(Kind.INPUT, (4,), name="x", dtype=dtype)
    wide = cast(b, x, "float64") if expected else x
    g = graph(b, b.add(Kind.CALL, (4,), (wide,), op="exp", dtype="float64"))
    said = [f for f in lint(g) if "float64" in f.message]
    assert [f.nodes[0] for f in said] == ([wide] if expected else [])


def test_work_on_weights_is_named_with_its_weight_and_the_passes():
    b = Builder()
    x, w = b.add(Kind.INPUT, (2, 4), name="x"), b.parameter("layer.weight", (4, 4))
    turned = b.call("transpose", w, shape=(4, 4), axes=[1, 0])
    g = graph(b, b.call("nn.dense", x, turned, shape=(2, 4)))
    (finding,) = lint(g)
    assert (finding.hazard, finding.remedy) == ("constants", "bind|fold")
    assert "layer.weight" in finding.message
    joint = graph(b, g.outputs[0], forward_outputs=1)
    assert "constants" not in hazards(joint)  # its weight gets a gradient


def test_work_on_constants_is_folded_and_views_of_them_cost_nothing():
    b = Builder()
    x = b.add(Kind.INPUT, (4, 4), name="x")
    c = b.add(Kind.CONSTANT, (4, 4), attrs={"digest": "c"})
    view = b.call("reshape", c, shape=(16,))
    root = b.call("sqrt", c, shape=(4, 4))
    g = graph(b, b.call("add", x, root, shape=(4, 4)), view)
    assert found(g) == {("constants", root, "fold")}


def test_duplicates_by_what_they_read_and_not_by_chance():
    b = Builder()
    x = b.add(Kind.INPUT, (4,), name="x")
    first, second = (b.call("exp", x, shape=(4,)) for _ in range(2))
    after = [b.call("negative", e, shape=(4,)) for e in (first, second)]
    g = graph(b, *after)
    assert found(g) == {("duplicates", second, "cse"), ("duplicates", after[1], "cse")}
    masks = [b.call("nn.dropout", x, shape=(4,), rate=0.1) for _ in range(2)]
    assert not found(graph(b, first, *masks))


def test_dead_code():
    b = Builder()
    x = b.add(Kind.INPUT, (4,), name="x")
    alive, dead = b.call("exp", x, shape=(4,)), b.call("exp", x, shape=(4,))
    end = b.call("negative", dead, shape=(4,))
    g = graph(b, alive, dead=True)
    (finding,) = lint(g)
    assert (finding.hazard, finding.nodes, finding.remedy) == ("dead", (end, dead), "dce")


def parallel(ir, op, count, weight, kind=Kind.PARAMETER):
    b = Builder()
    x = b.add(Kind.INPUT, (2, 4), name="x")
    products = []
    for i in range(count):
        attrs = {"digest": f"w{i}"} if kind is Kind.CONSTANT else {}
        name = f"w{i}" if kind is Kind.PARAMETER else ""
        w = b.add(kind, weight, name=name, attrs=attrs)
        products.append(b.call(op, x, w, shape=(2, 6)))
    return graph(b, *products, ir=ir)


def test_products_of_one_operand():
    assert {f.remedy for f in lint(parallel("relay", "nn.dense", 3, (6, 4)))} == {"combine_dense"}
    two = lint(parallel("relay", "nn.dense", 2, (6, 4)))
    assert [f.remedy for f in two] == ["combine_dense(branches=2)"]
    bound = lint(parallel("relax", "matmul", 2, (4, 6), Kind.CONSTANT))
    assert [f.remedy for f in bound] == ["combine_matmul"]
    assert "in front of bind" in bound[0].advice
    assert not lint(parallel("relay", "nn.dense", 1, (6, 4)))


def test_a_scale_that_a_weight_could_hold():
    b = Builder()
    x = b.add(Kind.INPUT, (1, 3, 8, 8), name="x")
    w, s, wrong = (
        b.add(Kind.CONSTANT, shape, attrs={"digest": str(shape)})
        for shape in ((5, 3, 1, 1), (5, 1, 1), (8, 8))
    )
    conv = b.call("nn.conv2d", x, w, shape=(1, 5, 8, 8), data_layout="NCHW")
    scaled = b.call("multiply", conv, s, shape=(1, 5, 8, 8))
    assert found(graph(b, scaled)) == {("scales", scaled, "fold_scale_axis")}
    other = b.call("nn.conv2d", x, w, shape=(1, 5, 8, 8), data_layout="NCHW", strides=[1])
    by_pixel = b.call("multiply", other, wrong, shape=(1, 5, 8, 8))
    assert not found(graph(b, by_pixel, scaled, scaled)) - {("scales", scaled, "fold_scale_axis")}


@pytest.mark.parametrize(
    ("width", "value", "expected"),
    [
        ([[0, 0], [0, 0], [1, 1], [1, 1]], "0.0", True),
        ([[0, 0], [0, 0], [1, 1], [1, 1]], "1.0", False),
        ([[0, 0], [1, 1], [0, 0], [0, 0]], "0.0", False),
    ],
)
def test_padding_that_a_convolution_could_do(width, value, expected):
    b = Builder()
    x = b.add(Kind.INPUT, (1, 3, 8, 8), name="x")
    w = b.add(Kind.CONSTANT, (5, 3, 3, 3), attrs={"digest": "w"})
    zero = b.add(Kind.CONSTANT, (), attrs={"digest": value, "value": value})
    pad = b.call("nn.pad", x, zero, shape=(1, 3, 10, 10), pad_width=width, pad_mode="constant")
    conv = b.call("nn.conv2d", pad, w, shape=(1, 5, 8, 8), data_layout="NCHW")
    g = graph(b, conv)
    assert found(g) == ({("paddings", pad, "fold_explicit_padding")} if expected else set())


@pytest.mark.parametrize(
    ("op", "value", "remedy"),
    [
        ("add", 0.0, "drop_zeros"),
        ("multiply", 1.0, "drop_ones"),
        ("divide", 1.0, "drop_ones"),
        ("add", 1.0, None),
        ("multiply", 0.0, None),
    ],
)
def test_operators_that_change_nothing(op, value, remedy):
    b = Builder()
    x = b.add(Kind.INPUT, (4,), name="x")
    same = b.call(op, x, b.constant(value), shape=(4,))
    assert found(graph(b, same)) == ({("no_ops", same, remedy)} if remedy else set())


def test_one_over_x_is_something():
    b = Builder()
    x = b.add(Kind.INPUT, (4,), name="x")
    assert not found(graph(b, b.call("divide", b.constant(1.0), x, shape=(4,))))


def chain(elements):
    b = Builder()
    x = b.add(Kind.INPUT, (elements,), name="x")
    first = b.call("exp", x, shape=(elements,))
    second = b.call("negative", first, shape=(elements,))
    return graph(b, b.call("sum", second, shape=(1,))), first, second


def test_a_chain_of_kernels_that_could_be_one_and_the_same_fused():
    g, first, second = chain(100_000)
    each = [(i,) for i in (first, second, *g.outputs)]
    assert found(g, kernels=each) == {("unfused", first, "fuse"), ("unfused", second, "fuse")}
    assert not found(g, kernels=[(first, second, *g.outputs)])
    assert not found(g)  # what the kernels are is not known


def test_what_fusion_left_apart_is_told_where_it_was_timed_and_has_no_pass():
    g, first, second = chain(100_000)
    kernels = [(first, second), g.outputs]
    assert not found(g, kernels=kernels)
    timed = [(k, 1e-3) for k in kernels]
    (finding,) = lint(g, measured=timed)
    assert (finding.hazard, finding.remedy, finding.measured) == ("unfused", "", True)
    assert 0 < finding.seconds <= 1e-3


def test_tiny_kernels_together():
    g, first, second = chain(16)
    each = [(i,) for i in (first, second, *g.outputs)]
    tiny = [f for f in lint(g, kernels=each) if f.hazard == "tiny"]
    assert [(f.remedy, set(f.nodes)) for f in tiny] == [
        ("fuse", {first, second}),
        ("", set(g.outputs)),
    ]
    slow = [((i,), 1e-3) for i in (first, second, *g.outputs)]
    assert "tiny" not in hazards(g, measured=slow)
    quick = [((i,), 2e-6) for i in (first, second, *g.outputs)]
    (one, _) = (f for f in lint(g, measured=quick) if f.hazard == "tiny")
    assert one.seconds == pytest.approx(4e-6)


def test_what_the_backward_computes_again():
    b = Builder()
    b.role = Role.FORWARD
    x, y = (b.add(Kind.INPUT, (64, 64), name=n) for n in "xy")
    product = b.call("matmul", x, y, shape=(64, 64))
    b.role = Role.BACKWARD
    gradient = b.call("multiply", product, x, shape=(64, 64))
    g = graph(b, product, gradient, ir="relax", forward_outputs=1)
    timed = [((product,), 1e-4), ((product, gradient), 2e-4)]
    (finding,) = lint(g, measured=timed, phases=["forward", "backward"])
    assert (finding.hazard, finding.nodes) == ("recomputed", (product,))
    assert f"--save {product}" in finding.advice
    once = [((product,), 1e-4), ((gradient,), 2e-4)]
    assert not lint(g, measured=once, phases=["forward", "backward"])


def test_what_no_kernel_computes_the_build_has_removed():
    g, t = transposed()
    product = g.outputs[0]
    assert found(g, measured=[((t,), 1e-3), ((product,), 1e-3)])
    assert not found(g, measured=[((product,), 1e-3)])


def test_the_most_expensive_comes_first():
    b = Builder()
    small, large = b.add(Kind.INPUT, (4,), name="a"), b.add(Kind.INPUT, (4096,), name="b")
    ends = [
        b.call("add", small, b.constant(0.0), shape=(4,)),
        b.call("add", large, b.constant(0.0), shape=(4096,)),
    ]
    assert [f.nodes[0] for f in lint(graph(b, *ends))] == ends[::-1]


def test_long_chains_are_walked_without_recursion():
    b = Builder()
    x = b.add(Kind.INPUT, (4,), name="x")
    c = b.add(Kind.CONSTANT, (4,), attrs={"digest": "c"})
    for _ in range(5_000):
        x = b.call("negative", x, shape=(4,))
        c = b.call("negative", c, shape=(4,))
    assert hazards(graph(b, b.call("add", x, c, shape=(4,)))) == {"constants"}


@pytest.mark.parametrize(
    ("ir", "pipeline", "remedy", "expected"),
    [
        (
            "relax",
            "cse|bind|fold|legalize",
            "combine_matmul",
            "cse|combine_matmul|bind|fold|legalize",
        ),
        ("relax", "cse|bind|fold|legalize", "dce", "cse|bind|fold|dce|legalize"),
        ("relay", "cse|fuse", "bind|fold", "cse|bind|fold|fuse"),
        ("relay", "cse", "fuse", "cse|fuse"),
        ("relay", "", "combine_dense(branches=2)", "combine_dense(branches=2)"),
    ],
)
def test_where_a_remedy_is_put(ir, pipeline, remedy, expected):
    assert str(with_remedy(ir, read_pipeline(ir, pipeline), remedy)) == expected


def test_every_linter_says_what_it_is():
    assert len(LINTERS) == 13
    for linter in LINTERS.values():
        assert linter.title and linter.summary.endswith(".")
