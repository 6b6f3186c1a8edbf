"""What the viewer's pictures are worth.

    python bench/browser/viewer.py [--samples bert_layer mlp]

For each sample, in both IRs: the forward, the joint graph, and the forward and backward functions
in its places, all their modules open; each step of the inference pipeline with the layout kept,
first to last. It prints edges that run through a node which they do not touch, boxes that overlap,
and crossings.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import common
from common import Row

from layouts import flaws, layout
from relascope.core.graph import Graph
from relascope.engine.client import EngineClient
from relascope.engine.jobs import cut as cutting
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts import cut as cuts
from relascope.viz.drawing.modules import fold_constants, module_groups
from relascope.viz.drawing.union import Union


def main() -> int:
    """Print the figures; 1 where an edge runs through a node or boxes overlap."""
    parser = common.options(__doc__, samples=False, repeats=0)
    parser.add_argument("--samples", nargs="*", default=["bert_layer", "gpt2_block", "mlp"])
    args = parser.parse_args()
    rows: list[Row] = []
    for ir in common.ENGINES:
        with EngineClient(ir) as client:
            for sample in args.samples:
                rows += _pictures(client, ir, sample)
    return common.finish(args, rows, _missed)


def _missed(row: Row) -> list[str]:
    return [f"{row['graph']}: {row[k]} {k}" for k in ("through", "overlaps") if row[k]]


def _pictures(client: EngineClient, ir: str, sample: str) -> Iterator[Row]:
    source, pipeline = ModelSource(sample), default_pipeline(ir, False)
    client.call("load", source)
    client.call("step", source, pipeline)
    steps = [client.call("graph_after", source, pipeline, i) for i in range(-1, len(pipeline))]
    training = ModelSource(sample, training=True)
    joint_pipeline = default_pipeline(ir, True)
    client.call("load", training)
    joint = cutting.joint_of(client.call, training, joint_pipeline)
    cut = cuts.cut(joint)
    coloured = joint.graph.with_roles(cuts.roles(joint, cut.ids))
    split = client.call("split", training, joint_pipeline, cut.ids)
    yield _judged(ir, sample, "forward", steps[0])
    yield _judged(ir, sample, "joint", coloured)
    for name, part in (("forward function", split.forward), ("backward function", split.backward)):
        union = Union()
        for graph in (coloured, part):
            union.add(fold_constants(graph))
        yield _judged(ir, sample, name, part, union)
    union = Union()
    kept = []
    for graph in steps:
        union.add(fold_constants(graph))
        kept.append(_judged(ir, sample, "steps, kept", graph, union))
    sums = {k: sum(row[k] for row in kept) for k in ("through", "overlaps", "crossings")}
    yield {**kept[-1], **sums, "graph": f"{len(kept)} steps, kept"}


def _judged(ir: str, sample: str, name: str, graph: Graph, union: Union | None = None) -> Row:
    folded = fold_constants(graph)
    groups = (union.graph()[1] if union else module_groups(folded)).groups
    drawn = layout(folded, groups, union=union)
    through, overlaps, crossings = flaws(drawn)
    return {
        "engine": ir,
        "sample": sample,
        "graph": name,
        "nodes": len(folded),
        "through": len(through),
        "overlaps": len(overlaps),
        "crossings": crossings,
        "size": f"{drawn.width:.0f} x {drawn.height:.0f}",
    }


if __name__ == "__main__":
    raise SystemExit(main())
