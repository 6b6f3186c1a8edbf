"""How much work a function does, counted in calls: the same on a fast machine and a busy one."""

import json
import sys
from collections.abc import Callable
from typing import Any

from py_mini_racer import MiniRacer

from relascope.viz.drawing.javascript import script

_COUNTED = """
let called = 0;
for (const [owner, names] of [[Math, ["max", "min", "round"]], [Array.prototype, ["push"]],
  [Map.prototype, ["get", "set", "has"]], [Set.prototype, ["add", "has"]]]) {
  for (const name of names) {
    const real = owner[name];
    owner[name] = function (...given) { called += 1; return real.apply(this, given); };
  }
}
"""


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions, Python's and C's, are called while `work` runs."""
    count = 0

    def count_it(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_it)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def builtins_called(module: str, function: str, argument: Any) -> int:
    """How often a function of the viewer calls what its inner loops are made of."""
    with MiniRacer() as engine:
        engine.eval(_COUNTED + script(module))
        engine.eval(f"{function}({json.dumps(argument)}); 0")
        return int(str(engine.eval("called")))
