"""Try random modules on an engine: right, refused, or wrong.

    python bench/oracles/random_modules.py --engine relax --count 500 [--first 0]

The grammar and the judge are those of tests/both/against_pytorch/grammar.py. Prints each module
that is not right and the fewest of its steps that are not, which steps are refused how often, and
the counts; ends with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/both/against_pytorch"))

from grammar import STEPS, RandomModule, fewest, verdict


def main() -> int:
    """Try modules; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--engine", choices=("relay", "relax"), default="relax")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="seed of the first module")
    parser.add_argument("--steps", action="store_true", help="each step of the grammar alone")
    parser.add_argument("--target", help="TVM's target; without it the machine's own")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    alone = list(STEPS) if options.steps else []
    for seed in range(options.first, options.first + (len(alone) or options.count)):
        recipe = [alone[seed - options.first]] if alone else RandomModule(seed).recipe
        word, about = verdict(seed, options.engine, options.target, recipe)
        counts[word] += 1
        if word in ("right", "void"):
            continue
        print(f"{word}: {about}", flush=True)
        if word == "refused":
            refusals[re.sub(r"( in [\w.]+| at the top)?\) of module .*", ")", about)] += 1
        else:
            print("  by", ", ".join(fewest(seed, options.engine, options.target, recipe)))
    print("\n".join(f"refused {n} times: {why}" for why, n in refusals.most_common()))
    print(", ".join(f"{counts[w]} {w}" for w in ("right", "refused", "wrong", "void")))
    return int(bool(counts["wrong"]))


if __name__ == "__main__":
    raise SystemExit(main())
