"""Open honest files of several versions of PyTorch: the file checks may refuse none.

    python bench/oracles/honest.py --torch PYTHON --torch PYTHON …

Each PYTHON has its own torch, from 1.13 on, and writes each model of
`tests/support/crafted/honest_models.py` in every way that it can; without --torch, this
environment's does. Refusals for an operator, for an input that is no tensor, and of programs of
PyTorch 2.7 or older, whose format is not read, are no faults. Returns 1 if a file is refused as
untrusted, or with torch's own message."""

import argparse
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from relascope.core.errors import EngineError
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import source_from_file
from relascope.engine.pytorch.inputs.tensors import tensor_type
from relascope.engine.pytorch.model import load_model

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/support/crafted"))
import common  # isort: skip
import honest_models  # isort: skip


def look(path: Path) -> tuple[str, str]:
    """Open a file: "opened", or the kind of its refusal, and the message."""
    source = source_from_file(path)
    if path.name.endswith(".script.pt"):  # which does not keep the shapes of its inputs
        inputs = [one() for one in honest_models.CASES[path.name.split(".")[0]][1]]
        tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
        source = replace(source, inputs=tuple(("", tensor_type(t)) for t in tensors))
    try:
        load_model(source, silent)
    except EngineError as error:
        old = "PyTorch 2.7 or older" in error.message
        kind = error.kind if error.kind in ("operator", "input") else "old" if old else "FAULT"
        return kind, f"{error.message} ({error.where}) {error.hint}"
    except Exception as error:  # which is what is looked for
        return "FAULT", f"{type(error).__name__}: {error}"
    return "opened", ""


def main() -> int:
    """Write files and open them; 1 if one is refused that should not be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--torch", action="append", metavar="PYTHON")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of torch's
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as own:
        for python in args.torch or [sys.executable]:
            subprocess.run([python, honest_models.__file__, own], check=True)
        for path in sorted(Path(own).iterdir()):
            kind, said = look(path)
            version, way = path.name.partition(".")[2].rsplit(".", 2)[:2]
            counts[f"{version} {way}", kind] += 1
            if kind == "FAULT":
                print(f"{path.name}: {kind}: {said[:400]}", flush=True)
    rows: dict[str, dict[str, Any]] = {}
    for (files, kind), count in sorted(counts.items()):
        rows.setdefault(files, {"files": files})[kind] = count
    common.table([*rows.values()], ("files", "opened", "operator", "input", "old", "FAULT"))
    faults = sum(count for (_, kind), count in counts.items() if kind == "FAULT")
    print(f"{counts.total()} files, {faults} refused that should not be")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
