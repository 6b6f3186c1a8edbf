"""Check that the recorder works with TVMs of other environments.

Each PYTHON belongs to an environment with a TVM and nothing of relascope's. A script compiles a
small module there, recorded at the level "graphs", and at "modules" if that TVM can save any.
Returns 1 if a text, a graph, a module or generated code is missing."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import common

from relascope.recorder.reading import Recording, read

SCRIPT = """
import numpy as np
import tvm
weight = np.ones((4, 4), "float32")
if hasattr(tvm, "relay") or __import__("importlib").util.find_spec("tvm.relay"):
    from tvm import relay
    x = relay.var("x", shape=(2, 4))
    y = relay.nn.relu(relay.nn.dense(x, relay.const(weight)))
    relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "llvm")
else:
    from tvm import relax
    kind = getattr(relax, "TensorStructInfo", None) or relax.TensorType
    x, builder = relax.Var("x", kind((2, 4), "float32")), relax.BlockBuilder()
    with builder.function("main", [x]):
        y = builder.emit(relax.op.matmul(x, relax.const(weight)))
        builder.emit_func_output(builder.emit(relax.op.nn.relu(y)))
    tvm.compile(builder.get(), tvm.target.Target("llvm"))
"""


def main() -> int:
    """Record and print; 0 if nothing is missing."""
    parser = common.options(__doc__, samples=False, repeats=0)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    args = parser.parse_args()
    return common.finish(args, [_row(python) for python in args.pythons])


def _row(python: str, level: str = "modules") -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="relascope-bench-") as name:
        folder = Path(name)
        (folder / "compile.py").write_text(SCRIPT)
        command = [sys.executable, "-m", "relascope", "record", "--json", "--level", level]
        done = subprocess.run(
            [*command, "-o", folder / "run.rsc", "--", python, folder / "compile.py"],
            capture_output=True,
            text=True,
            check=False,
        )
        document = json.loads(done.stdout.splitlines()[-1])
        if "error" in document:
            if level == "modules" and "saving a module" in done.stderr:
                return _row(python, "graphs")
            return {"tvm": "", "python": python, "missed": document["error"]["message"]}
        found = _found(read(folder / "run.rsc"))
        if document["status"]:
            found["missed"] = f"ended with {document['status']}: {done.stderr.strip()[-200:]}"
        return found


def _found(recording: Recording) -> dict[str, object]:
    contents = {
        h for p in recording.passes for side in (p.before, p.after) for h in (side or {}).values()
    }
    texts = {h: recording.text(h) for h in contents}
    why = {recording.no_graph(h) for h in contents} - {""}
    unprinted = [t for t in texts.values() if "cannot be printed" in t]
    modules = [recording.module(p.number, False) for p in recording.passes if p.kind == "pass"]
    said = [*why, *unprinted, *filter(None, [recording.stopped])]
    if recording.about["level"] == "modules" and not all(modules):
        said.append("modules are missing")
    said += [] if recording.kernels else ["no code"]
    return {
        "tvm": recording.about["tvm"],
        "python": recording.about["python"],
        "passes": len(recording.passes),
        "texts": len(texts),
        "graphs": sum(recording.graph(h) is not None for h in contents),
        "modules": sum(m is not None for m in modules),
        "code": ", ".join(c.language for c in recording.kernels),
        "missed": "; ".join(said),
    }


if __name__ == "__main__":
    raise SystemExit(main())
