"""Open and step the modules of TVM's own transform tests.

    python bench/oracles/transform_tests.py TVM/tests/python/relax

The tests run once; each module that a pass is given there is written as `mod.script()` prints it,
opened as a file, drawn, and stepped with that pass. Prints how many were, and the first reasons.
Returns 1 below 95 % opened or 90 % stepped, or where anything but a sentence of ours is raised.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import tvm

FOLDER, MOST = "RELASCOPE_TESTS_MODULES", 3  # modules of a test


@tvm.instrument.pass_instrument
class Written:
    """Writes the modules that outermost passes are given, and the passes' names."""

    def __init__(self, folder: Path, test: str) -> None:
        self.folder, self.test, self.depth, self.count = folder, test, 0, 0

    def run_before_pass(self, mod: Any, info: Any) -> None:
        relax = any(isinstance(f, tvm.relax.Function) for f in mod.functions.values())
        if not self.depth and relax and self.count < MOST and str(info.name) != "Normalize":
            path = self.folder / f"{self.test}.{self.count}.relax"
            path.write_text(mod.script(show_meta=True), encoding="utf-8")
            path.with_suffix(".pass").write_text(str(info.name), encoding="utf-8")
            self.count += 1
        self.depth += 1

    def run_after_pass(self, mod: Any, info: Any) -> None:
        self.depth -= 1


def pytest_pyfunc_call(pyfuncitem: Any) -> None:
    """As a plugin of pytest: have a test's passes watched."""
    name = f"{pyfuncitem.path.stem}.{pyfuncitem.name}".replace("/", "_")[:150]
    context = tvm.transform.PassContext(instruments=[Written(Path(os.environ[FOLDER]), name)])
    context.__enter__()
    pyfuncitem.addfinalizer(lambda: context.__exit__(None, None, None))


def main() -> int:
    """Write the modules, open them and print what came of it."""
    from relascope.core.errors import EngineError
    from relascope.engine.protocol.session import silent
    from relascope.engine.protocol.source import ModelSource
    from relascope.engine.relax.draw.to_graph import to_graph
    from relascope.engine.relax.frontend.modules import read_program
    from relascope.passes.relax import tvm_pipelines

    counts, reasons = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        plugin = ["-p", Path(__file__).stem, "-p", "no:cacheprovider", "-q"]
        paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        files = sorted(map(str, Path(sys.argv[1]).glob("test_*transform*.py")))
        command = [sys.executable, "-m", "pytest", *plugin, "--continue-on-collection-errors"]
        env = {**os.environ, FOLDER: folder, "PYTHONPATH": paths}
        subprocess.run([*command, *files], env=env, stdout=subprocess.DEVNULL)
        for path in sorted(Path(folder).glob("*.relax")):
            counts["modules"] += 1
            own = path.with_suffix(".pass").read_text(encoding="utf-8")
            try:
                program = read_program(path, ModelSource(str(path)), silent).program
                to_graph(program)
                counts["opened"] += 1
                if tvm_pipelines.made_by(own, tvm_pipelines.PLACES) is None:
                    continue
                counts["with a pass of TVM's"] += 1
                to_graph(getattr(tvm_pipelines, own)(program))
                counts["stepped"] += 1
            except EngineError as error:
                reasons[error.message.partition(": ")[2][:90] or error.message[:90]] += 1
            except Exception as error:
                at = "stepping" if counts["with a pass of TVM's"] > counts["stepped"] else "FAULT"
                reasons[f"{at} {own}: {type(error).__name__} {str(error)[-90:]}"] += 1
    for why, count in reasons.most_common(40):
        print(f"{count:4} {why}")
    print(", ".join(f"{n} {name}" for name, n in counts.items()))
    short = counts["opened"] < 0.95 * counts["modules"] or any("FAULT" in w for w in reasons)
    return int(short or counts["stepped"] < 0.9 * counts["with a pass of TVM's"])


if __name__ == "__main__":
    sys.exit(main())
