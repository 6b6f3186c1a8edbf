"""Graphs with nodes changed by hand, matched with what they were: how much is right, how fast.

The changes are drawn by a seed: an attribute, a shape, an inserted cast, an operator left out or
replaced, operands swapped, a constant's content. What each other node is, is known, for the changed
graph was made from the first one, under ids that say nothing. It is matched as it is, without
origins (as a file of IR has none), and without names and constants' contents either.

    .venv/bin/python bench/compiles/matching.py            # bert
    .venv/bin/python bench/compiles/matching.py bert_layer mlp --changes 5 --seeds 20
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from common import ENGINES, Row, finish, options

from changed_by_hand import changed_by_hand, nameless, without_origins
from relascope.core.graph import Graph
from relascope.core.identity import flat
from relascope.engine.client import EngineClient
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.viz.compare.match import match

LEAST, LONGEST = 0.95, 2.0
KNOWN: dict[str, Callable[[Graph], Graph]] = {
    "all": lambda graph: graph,
    "no origins": without_origins,
    "no names": nameless,
}


def main() -> int:
    """Print a row for each graph and what is known of it; 1 where the bar is missed."""
    parser = options(__doc__, repeats=0)
    parser.add_argument("--changes", type=int, default=20, metavar="N", help="nodes to change")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="draws of changes")
    args = parser.parse_args()
    rows: list[Row] = []
    for engine in args.engine or ENGINES:
        with EngineClient(engine) as client:
            for sample in args.samples or ["bert"]:
                source = ModelSource(sample)
                pipeline = default_pipeline(engine, False)
                at = {"imported": -1, "after its passes": len(pipeline) - 1}
                for stage, index in at.items():
                    graph = client.call("graph_after", source, pipeline, index)
                    about = {"engine": engine, "sample": sample, "graph": stage}
                    rows += [about | row for row in _rows(graph, args.changes, args.seeds)]
    return finish(args, rows, _missed)


def _rows(graph: Graph, changes: int, seeds: int) -> Iterator[Row]:
    for known, make in KNOWN.items():
        left = make(graph)
        shares, wrong, seconds, sure = [], 0, [], []
        for seed in range(seeds):
            made = changed_by_hand(left, changes, seed)
            began = time.perf_counter()
            found = match(left, made.graph)
            seconds.append(time.perf_counter() - began)
            others = [i for i in made.truth if i not in made.touched]
            pairs = {i: p for i in others if (p := found.by_left.get(i)) is not None}
            hits = [i for i, p in pairs.items() if p.right == made.truth[i]]
            shares.append(len(hits) / len(others))
            wrong += len(pairs) - len(hits)
            sure += [p.right == made.truth[i] for i, p in pairs.items() if p.sure >= 0.9]
        yield {
            "known": known,
            "nodes": sum(1 for _ in flat(left)),
            "right": round(statistics.mean(shares), 4),
            "worst draw": round(min(shares), 4),
            "wrong a draw": round(wrong / seeds, 2),
            "right where sure": round(statistics.mean(sure), 4) if sure else None,
            "seconds": round(statistics.median(seconds), 3),
            "slowest": round(max(seconds), 3),
        }


def _missed(row: Row) -> list[str]:
    said = []
    if row["worst draw"] < LEAST:
        said.append(f"{row['graph']}, known {row['known']}: {row['worst draw']:.1%} are right")
    if row["seconds"] > LONGEST:
        said.append(f"{row['graph']}: {row['seconds']} s")
    return said


if __name__ == "__main__":
    sys.exit(main())
