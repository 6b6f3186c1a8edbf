"""Which ways of building there are on a machine, and what is asked of the engine for them."""

import pytest

from answers import refused
from relascope.engine.jobs import variants
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.targets import Target
from relascope.passes.pipeline import Pipeline

HERE = (
    Target("llvm -libs=blas -schedules=relascope -records=relascope", "a CPU", True),
    Target("llvm -libs=blas -schedules=relascope", "a CPU", True),
    Target("llvm -libs=openblas", "a CPU", True),
    Target("llvm -libs=blas", "a CPU", True),
    Target("llvm", "a CPU", True),
    Target("cuda -arch=sm_90", "a GPU", True),
    Target("cuda -arch=sm_90 -graphs=cuda", "a GPU", True),
    Target("cuda -arch=sm_80 -gpu=1", "another GPU", True),
    Target("opencl", "no GPU", False, "There is none."),
)

ON_CPU = ["library", "openblas", "schedules", "tuned", "mixed_precision", "layout"]


def names(target):
    return [o.name for o in variants.offers("relax", HERE, target)]


def test_ways_are_those_of_the_chosen_targets_device_and_are_chosen_by_name():
    assert names("llvm") == ["tvm", *ON_CPU]
    assert names("cuda -arch=sm_90") == ["tvm", "graphs", "mixed_precision", "layout"]
    assert names("cuda -gpu=1") == ["tvm", "mixed_precision", "layout"]
    assert names("opencl") == ["mixed_precision", "layout"]
    offered = variants.offers("relax", HERE, "llvm")
    assert variants.chosen("all", offered) == offered
    found = variants.chosen("layout, library,layout", offered)
    assert [o.name for o in found] == ["layout", "library"]
    for text in ("magic", ",", "library,magic"):
        with refused("usage"):
            variants.chosen(text, offered)


@pytest.mark.parametrize("training", [False, True])
def test_a_way_has_its_own_pipeline_and_captures(training):
    source, pipeline = ModelSource("mlp", training=training), Pipeline.parse("cse|dce")
    asked = []

    def split(request):
        asked.append(str(request.pipeline))
        return request.split_at([str(request.pipeline)])

    offered = variants.offers("relax", HERE, "llvm")
    made = variants.variants(BuildRequest(source, pipeline, "llvm"), offered, split)
    assert [w.name for w in made] == ON_CPU
    by_name = {w.name: w.request for w in made}
    assert (by_name["library"].pipeline, by_name["library"].target) == (pipeline, "llvm -libs=blas")
    mixed = by_name["mixed_precision"]
    assert str(mixed.pipeline) == (
        "cse|dce|mixed_precision" if training else "mixed_precision|cse|dce"
    )
    assert mixed.target == "llvm" and mixed.captures == (str(mixed.pipeline),)
    assert len(asked) == 6
