"""Kernels are timed one by one, and each leads back to the nodes that it computes."""

import functools
from dataclasses import replace
from itertools import product

import pytest
import torch

import small_models  # noqa: F401
from kernel_profiles import TARGET, check_figures, check_fusion, check_node, profile, quiet
from quick import rare
from relascope.engine.cpu_kernels.openblas import OPENBLAS
from relascope.engine.measure import peaks
from relascope.engine.protocol.profile import Peaks
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.relax.building.targets import BLAS, SCHEDULES
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.joint import MASK_PREFIX
from relascope.passes.pipeline import Pipeline
from traces import Fn, save

LAYER = ModelSource("bert_layer", tokens=6)


@pytest.fixture(scope="module")
def profiled(session):
    @functools.cache
    def make(training, target):
        source = replace(LAYER, training=training)
        return profile(session, source, default_pipeline("relax", training), target)

    return make


LIBRARIES = "", BLAS, OPENBLAS, f"{BLAS} {SCHEDULES}"
WAYS = [way for way in product((False, True), LIBRARIES) if way != (False, BLAS)]


@pytest.mark.parametrize(("training", "libraries"), [(False, BLAS), *(rare(*w) for w in WAYS)])
def test_every_kernel_of_a_layer_puts_out_the_value_of_its_last_node(profiled, training, libraries):
    target = f"{TARGET} {libraries}".rstrip()
    found, graph, values = profiled(training, target)
    check_figures(found)
    order = {n.id: i for i, n in enumerate(graph)}
    for kernel in found.kernels:
        assert kernel.nodes, kernel.name
        assert list(kernel.nodes) == sorted(kernel.nodes, key=order.__getitem__)
        if len(kernel.outputs) == 1:
            check_node(kernel, kernel.nodes[-1], values)
    assert sum(p.unmapped_ms for p in found.phases) == 0
    # With our schedules so small a layer has no product left for the library.
    ours = SCHEDULES in target
    assert any("packed_matmul" in k.name for k in found.kernels) == ours
    for library, prefix in ((BLAS, "relascope."), (OPENBLAS, "openblas_matmul_")):
        products = [k for k in found.kernels if k.name.startswith(prefix)]
        assert bool(products) == (library in target.split() and not ours)
        assert all(k.flops for k in products)
    phases = ["forward", "backward"] if training else ["forward"]
    assert {k.phase for k in found.kernels} == {*phases}
    masks = [n.bytes for n in graph if n.name.startswith(MASK_PREFIX)]
    assert found.mask_bytes == sum(masks)
    assert bool(masks) == training
    if training:
        bare = replace(found, mask_bytes=0)
        assert found.peak_bytes - bare.peak_bytes == found.mask_bytes


def test_every_call_of_the_forward_is_in_one_kernel(session):
    source = ModelSource("small_bert", training=True)
    check_fusion(session, source, default_pipeline("relax", True))


def test_images_with_channels_last_are_shown_as_their_nodes_are(session, tmp_path):
    first, second = torch.nn.Conv2d(3, 6, 3), torch.nn.Conv2d(6, 6, 3, groups=6)
    module = torch.nn.Sequential(first, torch.nn.ReLU(), second)
    file = save(module, (torch.randn(2, 3, 9, 8),), tmp_path / "depthwise.pt")
    source = source_from_file(file, "input=2x3x9x8:float32")
    target = f"{TARGET} {BLAS} {SCHEDULES}"
    found, graph, values = profile(session, source, default_pipeline("relax", False), target)
    convolutions = [k for k in found.kernels if "channels-last" in k.name]
    assert len(convolutions) == 2 and all(k.flops for k in convolutions)
    for kernel in found.kernels:
        if kernel.nodes:  # the first lays the input out, and computes nothing
            check_node(kernel, kernel.nodes[-1], values)
            assert kernel.outputs[0].shape == graph.by_id[kernel.nodes[-1]].outputs[0].shape


def test_views_are_no_kernels_and_equal_ones_are_told_apart(profiled):
    found, graph, _ = profiled(False, f"{TARGET} {BLAS}")
    computed = {i for k in found.kernels for i in k.nodes}
    left = {n.op for n in graph if n.kind.value == "call" and n.id not in computed}
    assert left <= {"reshape", "permute_dims", "squeeze", "expand_dims"}
    found, _, _ = profiled(False, f"{TARGET} {BLAS}")
    norms = [k for k in found.kernels if k.name == "layer_norm"]
    assert len(norms) == 2
    assert norms[0].nodes != norms[1].nodes


def test_the_first_kernel_with_a_number_that_is_none_is_found(session, tmp_path):
    overflow = Fn(lambda x: torch.tanh(torch.relu(x) / (x - x)).softmax(-1))
    file = save(overflow, (torch.ones(2, 3),), tmp_path / "overflow.pt")
    source, pipeline = source_from_file(file), Pipeline.parse("legalize|fuse_ops|fuse_tir")
    found = session.profile(BuildRequest(source, pipeline, TARGET, 1, 2), progress=quiet)
    first = found.first_bad
    assert first is not None
    graph = session.graph_after(source, Pipeline(), -1, progress=quiet)
    assert "divide" in {graph.by_id[i].op for i in found.kernels[first].nodes}
    assert found.kernels[first].outputs[0].nans or found.kernels[first].outputs[0].infinities


def test_peaks_are_measured_once_for_a_number_of_threads_and_anew_on_request(monkeypatch):
    asked, single, half = [], ("float32",), ("float16",)

    def measure(device, dtypes):
        asked.append((device, torch.get_num_threads(), tuple(dtypes)))
        return Peaks("m", 1, (), ((1, 1.0),), float(len(asked)))

    monkeypatch.setattr(peaks, "measure", measure)
    own, before = RelaxSession(), torch.get_num_threads()
    once, other = (TARGET, 1, single), ("cuda", 1, half)
    questions = once, once, (*once, 1), (TARGET, 2, single), other
    found = [own.peaks(*about, progress=quiet).seconds for about in questions]
    torch.set_num_threads(before)
    assert found == [1.0, 1.0, 2.0, 3.0, 4.0]
    assert asked == [("cpu", 1, single), ("cpu", 1, single), ("cpu", 2, single), other]
