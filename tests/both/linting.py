"""What both engines' tests of linters need: programs with a hazard, before and after its pass."""

import torch

from answers import quiet
from relascope.engine.protocol.source import source_from_file
from relascope.passes.catalogue import read_pipeline
from relascope.passes.lint import lint
from relascope.passes.lint.remedies import with_remedy
from traces import save


def check_example(session, name, hazard):
    """The pass's own small program has the hazard that names it, and not any more after it."""
    example = session.example(name, progress=quiet)
    before = [f for f in lint(example.graph_before) if f.hazard == hazard]
    assert [f.remedy for f in before] == [str(example.step)]
    assert not [f for f in lint(example.graph_after) if f.hazard == hazard and f.remedy]


def check_remedy(session, source, pipeline, hazard, remedy):
    """The findings of a program, and that none is left when the pass that they name has run."""
    pipeline = read_pipeline(session.ir, pipeline)
    found = of(session, source, pipeline, hazard, remedy)
    assert found
    better = with_remedy(session.ir, pipeline, remedy)
    records = session.step(source, better, progress=quiet)
    assert all(r.error is None for r in records)
    assert not of(session, source, better, hazard, remedy)
    return found


def of(session, source, pipeline, hazard, remedy):
    graph = session.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet)
    return [f for f in lint(graph) if (f.hazard, f.remedy) == (hazard, remedy)]


def check_fusion_finds_nothing(session, source, pipeline):
    """Operator by operator the kernels of a program can be joined; as they are fused, none can."""
    graph = session.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet)
    each = [(n.id,) for n in graph if n.kind.value == "call"]
    fused = session.kernels(source, pipeline, True, progress=quiet)
    assert [f for f in lint(graph, each) if f.hazard == "unfused" and f.remedy]
    assert not [f for f in lint(graph, fused) if f.hazard == "unfused"]


class Casts(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x.to(torch.float64).to(torch.float32))


def traced(folder, module, shape):
    file = save(module, (torch.ones(*shape),), folder / "traced.pt")
    return source_from_file(str(file), f"{'x'.join(map(str, shape))}:float32")
