"""A recording of a compile that no TVM made: small, with one of everything."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from page_session import forward_graph
from relascope.core.graph import Graph
from relascope.recorder.writing import Writer, hashed

BEFORE = "def main(x):\n  %0 = transpose(w);\n  %1 = dense(x, %0);\n  relu(%1)\n"
AFTER = "def main(x):\n  %0 = dense(x, w);\n  relu(%0)\n"
LOOPS = "@T.prim_func\ndef kernel(a: T.handle):\n    for i in range(8):\n        A[i] = A[i] * 1\n"
SIMPLER = LOOPS.replace(" * 1", "")
HOSTILE = "<img src=x onerror=alert(1)>"
MESSAGE = "Traceback:\n  in kernel\nValueError: no axis 7 here"


def recorded(
    path: Path,
    graphs: bool = True,
    passes: int = 0,
    place: str = "",
    code: str = "",
    folded: bool = True,
    drawn: Callable[[bool], Graph] = forward_graph,
) -> Path:
    """Write it.

    Args:
        graphs: whether `main` has graphs beside its texts.
        passes: so many more at its end, each inside the one before it up to the tenth, that change
            the loops to and fro.
        place: in memory, as it stands in texts of loops; code: what was generated.
        folded: whether the pass that folds a transpose does.
        drawn: the graph of `main`, before the fold (True) and after it."""
    writer = Writer(path, {"tvm": "0.99", "level": "text", "arguments": ["compile.py", HOSTILE]})

    def content(text: str) -> str:
        name = hashed(text)
        writer.content("text", name, lambda: {"constants": [], "zlib": text})
        return name

    texts = BEFORE, AFTER if folded else BEFORE, LOOPS + place, SIMPLER + place
    before, after, loops, simpler = map(content, texts)
    for name, transposed in ((before, True), (after, False))[: 1 + folded]:
        if graphs:
            raw = json.dumps(drawn(transposed).to_json())
            writer.content("graph", name, partial(dict, zlib=raw))

    def begin(number: int, depth: int, name: str, module: object) -> None:
        about = {"begin": number, "depth": depth, "name": name, "opt_level": depth}
        writer.line({**about, "module": module})

    def end(number: int, seconds: float, module: object) -> None:
        made = {"code": [["llvm", content(code)]]} if code and number == 4 else {}
        writer.line({"end": number, "seconds": seconds, "module": module, **made})

    begin(0, 0, "sequential", [None, {"main": before}, []])
    begin(1, 1, "FoldTranspose", 0)
    end(1, 0.5, [0, {"main": after}, []])
    begin(2, 1, "InferType", 1)
    end(2, 0.25, 1)
    begin(3, 1, HOSTILE, 1)
    end(3, 0.01, [1, {"kernel": loops}, []])
    end(0, 1.0, 2)
    begin(4, 0, "tir.Simplify", 2)
    end(4, 0.002, [2, {"kernel": simpler}, []])
    for extra in range(passes):
        begin(5 + extra, min(extra, 9), f"tir.Pass{extra % 50}", 3 - extra % 2)
        end(5 + extra, 0.001, 2 + extra % 2)
    last = 5 + passes
    begin(last, 0, "Breaks", 3 - passes % 2)
    writer.line({"failed": last, "seconds": 0.003, "message": MESSAGE})
    writer.close()
    return path
