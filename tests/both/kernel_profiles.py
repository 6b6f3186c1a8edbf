"""What both engines keep of a profile: kernels, what they compute, and what they put out."""

import math

import torch

from answers import quiet
from limits import ELEMENTWISE, GRADIENT
from quick import QUICK
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.measure.intermediates import Intermediates, values_inside
from relascope.engine.protocol.request import BuildRequest
from relascope.passes.cuts.cut import Joint, cut

TARGET = QUICK


def profile(session, source, pipeline, target=TARGET, repeats=2):
    """The profile, the graph that its ids are of, and the tensors inside by id."""
    state = session.programs.end(source, pipeline, quiet)
    request = BuildRequest(source, pipeline, target, 1, repeats)
    if source.training:
        request = request.split_at(cut(state.base, "keep_all").ids)
    found = session.profile(request, progress=quiet)
    masks = draw_masks(state.program.masks, source.seed)
    part = Intermediates(state.function, masks, {}, state.program.gradients)
    model = session.programs.loaded(source, quiet).model
    return found, state.base, values_inside(session.backend, model, part, target)


def check_figures(found, repeats=2):
    assert (found.repeats, found.notes) == (repeats, ())
    assert all(c.max_rel < GRADIENT for c in found.comparisons)
    total = sum(p.median_ms for p in found.phases)
    for phase in found.phases:
        kernels = [k for k in found.kernels if k.phase == phase.name]
        assert kernels
        assert all(k.median_ms > 0 for k in kernels)
        assert math.isclose(phase.kernels_ms, sum(k.median_ms for k in kernels))
        unmapped = sum(k.median_ms for k in kernels if not k.nodes)
        assert math.isclose(phase.unmapped_ms, unmapped, abs_tol=1e-12)
        assert math.isclose(phase.unexplained_ms, phase.median_ms - phase.kernels_ms)
    for kernel in found.kernels:
        assert math.isclose(kernel.share, kernel.median_ms / total)
        assert kernel.bytes_in > 0
        sizes = [math.prod(o.shape) * getattr(torch, o.dtype).itemsize for o in kernel.outputs]
        assert kernel.bytes_out == sum(sizes)
        assert 0 < kernel.moved <= kernel.bytes_in + kernel.bytes_out
        assert 0 <= kernel.weights <= kernel.bytes_in
    assert found.peaks is not None
    assert found.peaks.threads == found.threads
    assert found.working_set > sum(p.memory_bytes for p in found.phases)
    products = [k for k in found.kernels if k.flops and k.flops > 1e5]
    assert products
    for kernel in products:
        roof = found.roof(kernel)
        assert roof is not None
        assert roof.least_ms > 0


def check_node(kernel, ident, values):
    (output,) = kernel.outputs
    value = values[ident]
    assert math.prod(output.shape) == value.numel(), kernel.name
    # Values far apart (attention masks) cancel in the mean.
    room = GRADIENT * float(value.double().abs().max()) + ELEMENTWISE
    theirs = value.min(), value.max(), value.double().mean()
    for one, other in zip((output.minimum, output.maximum, output.mean), theirs, strict=True):
        assert abs(one - float(other)) <= room, kernel.name


def check_fusion(session, source, pipeline):
    """Every call of the forward is in one kernel of those that FuseOps makes, and in one only."""
    graph = session.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet)
    found = session.kernels(source, pipeline, progress=quiet)
    inside = [i for nodes in found for i in nodes]
    assert len(inside) == len(set(inside))
    forward = Joint(graph).forward
    assert set(inside) == {n.id for n in graph if n.kind.value == "call" and n.id in forward}
    assert max(map(len, found)) > 1
    assert len(found) < len(inside)
