"""Rows of what a step changed, and the difference between two texts of an IR."""

from graphs import graph_of
from page_session import forward_graph
from relascope.core.identity import carry_identity
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare import changes
from relascope.viz.compare.text import stretches_of, text_diff

BEFORE, AFTER = forward_graph(), forward_graph(transposed=False)


def test_a_step_starts_from_before_what_is_only_for_looking_unless_it_is_so_too():
    relax = Pipeline.parse("cse|legalize|fuse_ops|dce")
    assert [changes.start_of("relax", relax, i) for i in range(-1, 4)] == [-1, -1, 0, 1, 0]
    assert changes.start_of("relay", Pipeline.parse("fuse|cse"), 1) == -1


def test_rows_name_the_origin_in_words():
    rows = {r["id"]: r for r in changes.change_rows(BEFORE, carry_identity(BEFORE, AFTER))}
    assert rows["t0"]["text"] == "left out: its readers read layers.0.weight"
    assert rows["d0"]["text"] == "reads layers.0.weight, not transpose"
    assert (rows["t0"]["to"], rows["d0"]["from"]) == (["w0"], ["w0"])
    rows = {r["id"]: r for r in changes.change_rows(AFTER, carry_identity(AFTER, BEFORE))}
    assert rows["t0"]["text"] == "inserted behind layers.0.weight"


def test_figures_count_what_is_held_and_leave_open_what_kernels_cost():
    assert changes.figures(BEFORE)["parameter_bytes"] == 4 * (32 * 16 + 4 * 32)
    assert changes.figures(BEFORE)["flops"] == 2 * 8 * 16 * 32 + 8 * 32 + 2 * 8 * 32 * 4
    kernel = "x :8x16; k add1 x call='call_tir' :8x16"
    assert changes.figures(graph_of(kernel))["flops"] is None
    counted = graph_of(f"{kernel} flops=12")  # by the compiler
    assert changes.figures(counted)["flops"] == 12


def test_operators_that_differ_come_first_and_what_was_removed_is_put_back():
    rows = changes.operator_rows(BEFORE, AFTER)
    assert rows[0] == {"operator": "transpose", "before": 1, "after": 0}
    assert {"operator": "nn.dense", "before": 2, "after": 2} in rows[1:]
    both = changes.with_removed(BEFORE, carry_identity(BEFORE, AFTER))
    both.validate()
    assert both.by_id["t0"].inputs == ("w0",)
    assert both.readers["t0"] == ()
    assert both.by_id["d0"].inputs == ("x", "w0")


def changed_lines(diff):
    return [x for x in diff.splitlines() if x[0] in "+-"][2:]


def test_numbers_of_lines_and_constants_are_followed_and_another_argument_shows():
    before = "%0 = a(%x);\n%1 = b(%0);\n%2 = c(%1);\n%3 = d(%2, %0);\n"
    after = "%0 = a(%x);\n%1 = c(%0);\n%2 = d(%1, %0);\n"
    lines = changed_lines(text_diff(before, after))
    assert lines == ["-%1' = b(%0);", "-%1 = c(%1');", "+%1 = c(%0);"]
    assert text_diff(before, before) == ""
    before = "%0 = p(%x);\n%1 = q(%0.1);\n"  # the second field of a tuple
    after = "%0 = a(%x);\n%1 = p(%x);\n%2 = q(%1.1);\n"
    assert changed_lines(text_diff(before, after)) == ["+%0 = a(%x);"]
    before = "%0 = a(%x);\n%1 = b(%x);\n%2 = c(%0);\n"
    lines = changed_lines(text_diff(before, before.replace("c(%0)", "c(%1)")))
    assert lines == ["-%2 = c(%0);", "+%2 = c(%1);"]
    before = 'lv = f(x, metadata["ir.GenericConst"][0])\ngv = g(lv, m["ir.GenericConst"][1])\n'
    after = 'gv = g(x, m["ir.GenericConst"][0])\n'
    _, _, last = changed_lines(text_diff(before, after))
    assert last == f"+{after.strip()}"


def test_two_columns_pair_lines_and_mark_words_also_of_what_was_made():
    before = "%0 = a(%x);\n%1 = b(%0);\n%2 = c(%1, axis=1);\nend\n"
    after = "%0 = a(%x);\n%1 = c(%0, axis=2);\nnew thing\nend\n"
    same, changed, last = stretches_of(before, after)
    assert same.same and last.same and not changed.same
    assert changed.changed == 4
    gone, turned, came = changed.rows
    assert gone == ((2, [("%1' = b(%0);", True)]), None)
    (number, left), (other, right) = turned
    assert (number, other) == (3, 2)
    assert "".join(t for t, _ in left) == "%1 = c(%1', axis=1);"
    assert [t for t, marked in right if marked] == ["0", "2"]
    assert came == (None, (3, [("new thing", True)]))
    assert last.rows == (4, 4, ["end"])
    (only,) = stretches_of("", "a\nb")
    assert [row[0] for row in only.rows] == [None, None] and only.changed == 2
    assert stretches_of("a", "a")[0].same
    (long,) = stretches_of("", "x" * 10**6)
    assert len(long.rows[0][1][1][0][0]) == 2_000
    came, (left, right) = stretches_of("p q 1\nend", "new\np q 2\nend")[0].rows
    assert came == (None, (1, [("new", True)])) and (left[0], right[0]) == (1, 2)
