"""Compare both engines' importers of ONNX with ONNX's own node tests.

Every test of `onnx.backend.test` is read like a file, imported, built, run, and its outputs are
compared with the test's: shapes, dtypes, and values within the test's own tolerance; in float16 and
bfloat16 a few roundings of the largest value are allowed, too. Inputs that decide shapes, such as
Reshape's second, are constants of the model, as exporters write them.

Results are JSON lines in out/onnx_nodes, so that a stopped run continues there. Prints right,
refused and wrong, of all tests and of those whose operators TVM's importer has. Returns 1 if
anything is wrong or crashed."""

import argparse
import importlib
import sys
import time
from collections import Counter
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx.backend.test.loader import load_model_tests

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/both/against_pytorch"))

from judged import ROOT, Row, apart, failed
from operators import resume
from relascope.core.errors import EngineError
from relascope.engine.files.onnx_model import AT_IMPORT, prepare_onnx
from relascope.engine.in_process import load_engine
from relascope.engine.registry import ENGINES, REGISTRY
from relascope.passes.catalogue import info
from relascope.passes.pipeline import Pipeline


@cache
def _tests() -> dict[str, Any]:
    return {t.name: t for t in load_model_tests(kind="node")}


def _model(test: Any) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """A test's model with inputs that decide shapes as constants, and the remaining inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    held = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in held]
    decided = {
        node.input[p]
        for node in model.graph.node
        for p in AT_IMPORT.get(node.op_type, ())
        if p < len(node.input)
    }
    stay, values = [], []
    for name, given in zip(names, test.data_sets[0][0], strict=True):
        if name in decided and isinstance(given, np.ndarray | np.generic):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(given), name))
        else:
            stay.append(next(i for i in model.graph.input if i.name == name))
            values.append(given)
    kept = [onnx.ValueInfoProto.FromString(i.SerializeToString()) for i in stay]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model, values


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    value = np.array(value)
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value)


def _array(tensor: torch.Tensor) -> np.ndarray:
    own = tensor.dtype != torch.bfloat16
    return tensor.numpy() if own else tensor.float().numpy().astype(ml_dtypes.bfloat16)


def _difference(test: Any, ours: list[np.ndarray]) -> str:
    """How outputs differ from the test's, in words; "" if they do not."""
    theirs = test.data_sets[0][1]
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs for {len(theirs)}"
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        b = onnx.numpy_helper.to_array(b) if isinstance(b, onnx.TensorProto) else np.asarray(b)
        if a.shape != b.shape or str(a.dtype) != str(b.dtype):
            return f"{index}: {a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        room = 0.0
        if a.dtype.kind not in "biu":
            rounding = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(a.dtype.name, 0.0)
            a, b = a.astype(np.float64), b.astype(np.float64)
            room = 4 * rounding * float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
        close = np.isclose(a, b, rtol=test.rtol, atol=max(test.atol, room), equal_nan=True)
        if not close.all():
            at = [int(i) for i in np.flatnonzero(~np.asarray(close))[:4]]
            pairs = ", ".join(f"[{i}] {a.reshape(-1)[i]} for {b.reshape(-1)[i]}" for i in at)
            return f"{index}: {close.size - int(close.sum())} of {close.size} off, {pairs}"
    return ""


def look(backend: Any, target: str, frontend: Any, theirs: set[str], test: Any) -> Row:
    """Try one test."""
    began = time.perf_counter()
    ops = {n.op_type if n.domain in ("", "ai.onnx") else n.domain for n in test.model.graph.node}
    row: Row = {"op": test.name, "known": ops <= theirs, "operators": sorted(ops)}
    try:
        model, values = _model(test)
        given = prepare_onnx(model, frontend.known_operators(), backend.ir, test.name)
        program = frontend.import_onnx(given, test.name)
        for step in Pipeline.parse(REGISTRY[backend.ir].live):
            program = info(backend.ir, step).applied(program, step)
        built = backend.build(program, None, target)
        tensors = {n: _tensor(v) for n, v in zip(program.inputs, values, strict=True)}
        tensors |= {n: torch.from_numpy(v.numpy()) for n, v in program.params.items()}
        found = _difference(test, [_array(t) for t in built.forward(tensors)[0]])
        row |= {"verdict": "wrong" if found else "right", "message": found}
    except Exception as error:
        row |= failed(error)
        if isinstance(error, EngineError) and error.kind == "file":
            row["verdict"] = "refused"
    return {**row, "seconds": round(time.perf_counter() - began, 2)}


def _work(ir: str, target: str, names: list[str], skip: int, pipe: Connection) -> None:
    """In a child: look at tests, and send every row."""
    backend, tests = load_engine(ir), _tests()
    frontend = importlib.import_module(f"relascope.engine.{ir}.frontend.onnx")
    theirs = set(frontend.everything())
    for name in names:
        if not skip:
            pipe.send({"op": name, "index": 0})
            pipe.send({**look(backend, target, frontend, theirs, tests[name]), "index": 0})
        pipe.send({"op": name, "end": True})
        skip = 0
    pipe.close()


def summary(ir: str, rows: list[Row]) -> int:
    """Print counts; 1 where anything is wrong or crashed."""
    for about, own in (
        ("tests", rows),
        ("whose operators TVM's importer has", [r for r in rows if r.get("known", True)]),
    ):
        counts = Counter(r["verdict"] for r in own)
        said = ", ".join(f"{v} {counts[v]}" for v in ("right", "refused", "wrong", "crash"))
        share = 100 * counts["right"] / max(1, len(own))
        print(f"{ir}: of {len(own)} {about}: {said} ({share:.1f} % right)")
    return int(any(r["verdict"] in ("wrong", "crash") for r in rows))


def main() -> int:
    """Look at all requested tests; 1 if anything is wrong or crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--test", nargs="+", default=[], metavar="NAME", help="or a part of one")
    parser.add_argument("--folder", type=Path, default=ROOT / "out/onnx_nodes")
    args = parser.parse_args()
    engines = args.engine or list(ENGINES)
    if len(engines) > 1:  # one TVM a process
        return apart(engines)
    path = args.folder / f"{engines[0]}.jsonl"
    names = sorted(_tests(), key=lambda n: "expanded" in n)  # which are of other operators
    names = [n for n in names if not args.test or any(a in n for a in args.test)]
    return summary(engines[0], resume(path, engines[0], names, bool(args.test), _work))


if __name__ == "__main__":
    raise SystemExit(main())
