"""Identity and origins over every step of the default pipelines of a BERT layer, in both IRs."""

import pytest

from engines import shared
from layouts import flaws, layout
from relascope.core.identity import carry_identity, flat, makers, own_key
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.viz.compare.changes import start_of
from relascope.viz.compare.origins import Fate, origins
from relascope.viz.drawing.modules import fold_constants
from relascope.viz.drawing.union import Union

RUNS = {
    "relay": [(False, "tvm"), (True, "tvm")],
    "relax": [(False, "tvm"), (True, "tvm"), (True, "pytorch")],
}


def stepped(ir):
    ask = shared(ir).call
    for training, gradient in RUNS[ir]:
        source = ModelSource("bert_layer", training=training, gradient=gradient)
        pipeline = default_pipeline(ir, training, gradient)
        graphs = [ask("graph_after", source, pipeline, i) for i in range(-1, len(pipeline))]
        for index, step in enumerate(pipeline):
            before = graphs[start_of(ir, pipeline, index) + 1]
            yield step.name, before, carry_identity(before, graphs[index + 1])


@pytest.fixture(scope="module", params=list(RUNS))
def steps(request):
    return request.param, list(stepped(request.param))


def calls(graph):
    made_by = makers(graph)
    return {
        n.id: (own_key(n), *(made_by.get(i, i) if isinstance(i, str) else i for i in n.inputs))
        for n in flat(graph)
    }


def test_what_did_not_change_keeps_its_id(steps):
    _, found = steps
    for name, before, matched in found:
        was, now = calls(before), calls(matched.graph)
        lost = {was[i] for i in matched.removed}
        assert not lost & {now[i] for i in matched.added}, name
        assert matched.changed == {i for i in was.keys() & now.keys() if was[i] != now[i]}, name


def test_every_node_that_comes_or_goes_says_from_where_and_to_where(steps):
    _, found = steps
    alone = {Fate.DEAD, Fate.ARGUMENT}
    sure = total = 0
    for name, before, matched in found:
        rows = origins(before, matched)
        touched = matched.added | matched.removed | matched.changed
        assert sorted(o.id for o in rows) == sorted(touched), name
        old, new = set(calls(before)), set(calls(matched.graph))
        for o in rows:
            if o.what == "removed":
                assert o.nodes or o.how in alone, (name, o)
                assert set(o.nodes) <= new, (name, o)
            else:
                assert o.nodes or o.how in alone or o.detail, (name, o)
                assert set(o.nodes) <= old | new, (name, o)
        sure += sum(o.sure for o in rows)
        total += len(rows)
    assert sure > 0.85 * total


BOTH = {"cse": Fate.MERGED, "fold": Fate.FOLDED}
KINDS = {
    "relay": BOTH
    | {
        "graph_normal_form": Fate.DEAD,
        "transpose_dedup": Fate.LEFT_OUT,
        "decompose_layer_norm": Fate.REPLACED,
    },
    "relax": BOTH | {"decompose_gelu": Fate.REPLACED, "combine_matmul": Fate.REPLACED},
}


def test_passes_are_told_apart_by_where_their_nodes_go(steps):
    ir, found = steps
    seen = set()
    for name, before, matched in found:
        if name in KINDS[ir] and matched.removed:
            rows = [o for o in origins(before, matched) if o.what == "removed"]
            assert {o.how for o in rows} == {KINDS[ir][name]}, name
            assert all(o.sure for o in rows), name
            seen.add(name)
    assert seen == set(KINDS[ir])


def test_fusing_names_the_operators_and_kernels_their_operators(steps):
    ir, found = steps
    named = {name: (before, matched) for name, before, matched in found}
    before, matched = named["fuse" if ir == "relay" else "fuse_ops"]
    rows = origins(before, matched)
    assert {o.how for o in rows} == {Fate.FUSES}
    assert sum(len(o.nodes) for o in rows) == len({i for o in rows for i in o.nodes})
    if ir == "relax":
        before, matched = named["legalize"]
        removed = (o for o in origins(before, matched) if o.what == "removed")
        pairs = {o.id: o.nodes[0] for o in removed if o.how is Fate.REPLACED}
        pairs = {before.by_id[a].op: matched.graph.by_id[b].op for a, b in pairs.items()}
        assert pairs["nn.softmax"] == "softmax"
        assert pairs["nn.gelu"] == "gelu"
        assert pairs["permute_dims"].startswith("transpose")
        before, matched = named["fuse_tir"]
        moved = [o for o in origins(before, matched) if o.how is Fate.MOVED]
        assert len(moved) > 20
        assert all(matched.graph.by_id[o.nodes[0]].op.startswith("fused_") for o in moved)


def test_what_is_there_before_and_after_a_step_stays_in_its_place(steps):
    ir, found = steps
    union, last, kept = Union(), {}, 0
    graphs = [fold_constants(m.graph, 10) for _, _, m in found[: len(default_pipeline(ir, False))]]
    for graph in graphs:
        union.add(graph)
    opened = list(union.graph()[1].groups)
    for graph, (name, _, _) in zip(graphs, found, strict=False):
        drawn = layout(graph, opened, union=union)
        solid = [b for b in drawn.boxes if not b.open]
        at = {b.id: (b.x, b.y) for b in solid}
        assert set(at) == {n.id for n in graph.nodes}, name
        common = at.keys() & last.keys()
        kept += len(common)
        # The whole picture may have moved, with the view that holds on to it.
        moves = {(round(at[i][0] - last[i][0]), round(at[i][1] - last[i][1])) for i in common}
        assert len(moves) <= 1 or max(spans(moves)) <= 2, name
        assert flaws(drawn) == ((), ()), name
        last = at
    assert kept > 300


def spans(moves):
    return [max(c) - min(c) for c in zip(*moves, strict=True)]
