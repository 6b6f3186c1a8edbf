"""Captures that wait on the host, and values that the backward computes per use."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import per_use
from answers import refused
from gradients import bert_layer, compare, joint, small_net, to_graph, trained, values_of
from grammar import RandomModule
from quick import QUICK, combinations, rare, small_peaks
from relascope.core.graph import Kind
from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.measure.memory import torch_peak
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relax.building import runtime
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import Joint, cut
from relascope.passes.cuts.lifetimes import peak
from relascope.passes.cuts.offload import HOST, marked, movable
from relascope.passes.cuts.split_program import FROM_HOST, TO_HOST, is_on_host
from relascope.passes.relax.training.split import split
from relascope.viz.rows.profile import profile_document

OURS = f"llvm {SCHEDULES}"


def images():
    layers = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 4, 3)
    return nn.Sequential(*layers), torch.randn(2, 4, 8, 8)


def layer():
    module, inputs = bert_layer()
    return module, *inputs


MADE = {"net": lambda: (small_net(), torch.randn(3, 4)), "layer": layer, "images": images}


def built_with(program, chosen, target=OURS, **how):
    """A joint program split at the chosen captures, and built."""
    parts = split(program, *to_graph(program), chosen)
    return parts, runtime.assemble(program, parts, BuildOptions(target, **how))


def alike(model, program, target):
    """Hold results against those of the same cut without the host, bit by bit; how many captures
    wait there, and the results."""
    graph, values = to_graph(program)[0], values_of(model, program)
    ids, found = cut(graph, "keep_all").ids, []
    away = movable(Joint(graph), ids)
    for chosen in ids, marked(ids, away):
        _, built = built_with(program, chosen, target, opt_level=1)
        outputs, captures = built.forward(values)
        gradients = built.backward({**values, **captures})
        found.append([*outputs, *gradients.values()])
    assert sum(map(is_on_host, captures)) == len(away)
    plain, moved = ([t.reshape(-1).view(torch.uint8) for t in ts] for ts in found)
    assert all(a.equal(b) for a, b in zip(plain, moved, strict=True))
    return len(away), outputs, gradients


@pytest.mark.parametrize(("made", "target"), combinations([*MADE], [OURS, QUICK]))
def test_results_are_the_same_bits_and_pytorchs(made, target):
    model, program = trained(*MADE[made]())
    count, outputs, gradients = alike(model, joint(program), target)
    assert count
    compare(model, outputs[: len(model.forward())], gradients)


@pytest.mark.parametrize("seed", [0, *map(rare, range(1, 40))])
def test_modules_drawn_at_random_give_the_same_bits(seed):
    per_use.check_random(RandomModule(seed), QUICK, alike)


def test_copies_are_nodes_out_after_their_writer_and_back_before_their_first_reader():
    _, program = trained(*MADE["layer"]())
    graph, exprs = to_graph(whole := joint(program))
    ids = cut(graph, "keep_all").ids
    away = movable(Joint(graph), ids)
    parts = split(whole, graph, exprs, marked(ids, away))
    for name, copy in ("forward", TO_HOST), ("backward", FROM_HOST):
        drawn, _ = to_graph(getattr(parts, name), name)
        place = {n.id: k for k, n in enumerate(drawn)}
        copies = [n for n in drawn if n.op == copy]
        assert len(copies) == len(away)
        for node in copies:
            (given,) = drawn.edges[node.id]
            if copy == FROM_HOST:
                assert drawn.by_id[given].kind is Kind.INPUT and is_on_host(drawn.by_id[given].name)
                first = min(place[r] for r in drawn.readers[node.id])
                between = {n.id for n in drawn.nodes[place[node.id] + 1 : first] if n.edges}
                assert between <= {*drawn.edges[drawn.nodes[first].id]}


def test_the_device_does_not_hold_what_waits_on_the_host():
    """Against the estimates, and in a chain of wide results and small weights."""
    parts = [part for _ in range(4) for part in (nn.Linear(16, 16), nn.GELU())]
    model, program = trained(nn.Sequential(*parts), torch.randn(4096, 16))
    it, values = Joint(to_graph(whole := joint(program))[0]), values_of(model, whole)
    ids, measured = cut(it, "keep_all").ids, []
    away = movable(it, ids)
    estimated = [peak(it, ids, some) for some in ((), away)]
    for some in (), away:
        _, built = built_with(whole, marked(ids, some))

        def run(built=built):
            outputs, captures = built.forward(values)
            return outputs, built.backward(values, captures)

        with built.counting() as counted:
            measured.append(torch_peak(run, torch.device("cpu")))
        assert counted
    assert measured == pytest.approx(estimated, rel=0.05)
    assert measured[1] < 0.7 * measured[0]


def test_a_timing_says_what_the_peak_leaves_out():
    session, request, bytes_away = moved_mlp(OURS)
    notes = [n for n in session.time(request, progress=silent).notes if "wait on the host" in n]
    assert len(notes) == 1 and f"{bytes_away:,} bytes" in notes[0]


def moved_mlp(target):
    """A session, a request of a build with captures on the host, and their bytes."""
    session, source = RelaxSession(), ModelSource("mlp", training=True)
    pipeline = default_pipeline("relax", True)
    whole = Joint(session.graph_after(source, pipeline, len(pipeline) - 1, True, progress=silent))
    away = movable(whole, ids := cut(whole, "keep_all").ids)
    request = BuildRequest(source, pipeline, target, 1, 2).split_at(marked(ids, away))
    return session, request, sum(whole.work.bytes[i] for i in away)


def test_a_gpu_builds_the_copies_but_records_none_as_a_graph():
    session, request, _ = moved_mlp("cuda -arch=sm_90")
    assert session.compile(request, progress=silent).kernels
    for other in ("cuda -arch=sm_90 -graphs=cuda", "opencl"):
        with refused("target", "without CUDA graphs"):
            session.compile(replace(request, target=other), progress=silent)


def test_a_kernel_writes_over_what_is_on_the_host_by_then():
    model, program = trained(nn.Sequential(nn.Linear(16, 16), nn.GELU()), torch.randn(4096, 16))
    found = cut(to_graph(whole := joint(program))[0], "min_cut", offload=True)
    parts, built = built_with(whole, marked(found.ids, movable(found.joint, found.ids)))
    assert parts.cut.offloaded
    assert built.functions[0].own_memory(values_of(model, whole)).peak < 2 * 4096 * 16 * 4


def test_the_copies_are_kernels_of_a_profile():
    session, request, _ = moved_mlp(OURS)
    with small_peaks():
        profile = session.profile(request, progress=silent)
    of = default_pipeline("relax", True)
    graph = session.graph_after(request.source, of, len(of) - 1, True, progress=silent)
    copies = [k for k in profile_document(profile, graph)["kernels"] if "host" in k["name"]]
    count = sum(i.startswith(HOST) for i in request.captures)
    assert [k["name"] for k in copies] == [TO_HOST] * count + [FROM_HOST] * count
    assert not profile.notes and all(len(k["nodes"]) == 1 for k in copies)


@pytest.mark.parametrize("target", [QUICK, OURS])
def test_gradients_of_values_per_use_have_the_same_bits_and_are_pytorchs(target):
    per_use.check_layers(target)


@pytest.mark.parametrize("seed", [*range(2), *map(rare, range(2, 40))])
def test_modules_drawn_at_random_with_values_per_use_give_the_same_bits(seed):
    per_use.check_random(RandomModule(seed), QUICK)


def test_the_measured_peak_falls_as_far_as_the_estimate():
    (once, estimated), (often, lower) = per_use.peaks(OURS)
    assert often < 0.9 * once and lower < 0.9 * estimated
    assert often == pytest.approx(lower, rel=0.05)
