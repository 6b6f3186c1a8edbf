"""Record scripts that nobody here wrote: TVM's own tutorials and tests, unchanged.

Run `python bench/oracles/tvm_scripts.py --engine relay CHECKOUT` from the project's root, with a
checkout of Apache TVM's sources: of a version with Relay, such as v0.17.0, for `relay`, a present
one for `relax`. Only its Python files are read; what runs is the engine's TVM. Scripts named after
the checkout are run in place of the list here.

Each script is run plainly and then by `relascope record`, a tutorial as it is and a test file by
pytest, without the network (proxies that answer nothing). It counts where a recording opens that
has passes, with every text, and where the script ends as it does without the recorder: the same
status, and the same numbers of tests that passed, failed and were left out. Tests that fail by
themselves, for this TVM was built without something or is another version, do not matter. Prints
a table, which `-o` writes as Markdown; returns 1 where one does not count.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from relascope.core.errors import EngineError
from relascope.recorder import environment
from relascope.recorder.reading import read

_RELAY = """
gallery/how_to/extend_tvm/low_level_custom_pass.py
gallery/how_to/extend_tvm/use_pass_infra.py
gallery/how_to/extend_tvm/use_pass_instrument.py
gallery/tutorial/tensor_ir_blitz_course.py
tests/python/relay/test_pass_canonicalize_cast.py
tests/python/relay/test_pass_combine_parallel_dense.py
tests/python/relay/test_pass_convert_op_layout.py
tests/python/relay/test_pass_dead_code_elimination.py
tests/python/relay/test_pass_eliminate_common_subexpr.py
tests/python/relay/test_pass_fold_constant.py
tests/python/relay/test_pass_fold_scale_axis.py
tests/python/relay/test_pass_fuse_ops.py
tests/python/relay/test_pass_instrument.py
tests/python/relay/test_pass_manager.py
tests/python/relay/test_pass_partition_graph.py
tests/python/relay/test_pass_simplify_inference.py
tests/python/relay/test_relay_te_compiler.py
tests/python/relay/test_to_mixed_precision.py
tests/python/relay/test_pass_remove_unused_functions.py
"""
_RELAX = """
docs/get_started/tutorials/ir_module.py
docs/get_started/tutorials/quick_start.py
docs/how_to/tutorials/customize_opt.py
docs/deep_dive/relax/tutorials/relax_creation.py
docs/deep_dive/relax/tutorials/relax_transformation.py
docs/deep_dive/tensor_ir/tutorials/tir_transformation.py
tests/python/relax/test_blockbuilder_emit_te.py
tests/python/relax/test_pipeline.py
tests/python/relax/test_transform.py
tests/python/relax/test_transform_combine_parallel_matmul.py
tests/python/relax/test_transform_convert_layout.py
tests/python/relax/test_transform_cse.py
tests/python/relax/test_transform_dead_code_elimination.py
tests/python/relax/test_transform_fold_constant.py
tests/python/relax/test_transform_fuse_ops.py
tests/python/relax/test_transform_fuse_tir.py
tests/python/relax/test_transform_legalize_ops_nn.py
tests/python/relax/test_transform_static_plan_block_memory.py
tests/python/relax/test_vm_build.py
tests/python/relax/test_vm_codegen_tir.py
"""
SCRIPTS = {"relay": _RELAY.split(), "relax": _RELAX.split()}


@dataclass
class Row:
    """What came of a script."""

    script: str
    ended: str
    files: int
    passes: int
    failed: int
    megabytes: float
    seconds: float
    wrong: str = ""

    def line(self) -> str:
        """As a row of a table in Markdown."""
        said = self.wrong or "recorded"
        numbers = f"{self.passes:,} | {self.failed:,} | {self.files} | {self.megabytes:.1f}"
        return f"| `{self.script}` | {numbers} | {self.seconds:.0f} | {self.ended} | {said} |"


HEAD = (
    "| script | passes | failed ones | files | MiB | s | ended | |\n"
    "|---|---|---|---|---|---|---|---|"
)


def main() -> int:
    """Record, print, and return 0 where every script counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--engine", choices=tuple(SCRIPTS), required=True)
    add("--level", default="text")
    add("--limit-seconds", type=float, default=300, metavar="S", help="for each run of a script")
    add("-o", dest="output", type=Path, metavar="FILE")
    add("checkout", type=Path)
    add("scripts", nargs="*", help="paths in the checkout")
    args = parser.parse_args()
    rows = []
    print(HEAD, flush=True)
    for script in args.scripts or SCRIPTS[args.engine]:
        rows.append(_tried(args, script))
        print(rows[-1].line(), flush=True)
    good = sum(not r.wrong for r in rows)
    print(f"{good} of {len(rows)} scripts are recorded; {sum(r.passes for r in rows):,} passes")
    if args.output:
        args.output.write_text("\n".join([HEAD, *(r.line() for r in rows)]) + "\n")
    return 0 if good == len(rows) else 1


def _variables(engine: str) -> dict[str, str]:
    dead = "http://127.0.0.1:9"
    found = {**os.environ, "http_proxy": dead, "https_proxy": dead, "HF_HUB_OFFLINE": "1"}
    if engine == "relay":
        from relascope.engine.relay.tvm.boot import boot, child_environment

        boot()
        found |= child_environment()
    return found


def _tried(args: argparse.Namespace, script: str) -> Row:
    with tempfile.TemporaryDirectory(prefix="relascope-bench-") as name:
        folder = Path(name)
        path = (args.checkout / script).resolve()
        tested = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(path.parent)]
        command = [sys.executable, *(tested if path.name.startswith("test_") else []), str(path)]
        record = [sys.executable, "-m", "relascope", "record", "--level", args.level]
        record += ["-o", str(folder / "run.rsc"), "--"]
        began = time.monotonic()
        try:
            plain, recorded = (_ended(c, args, folder) for c in (command, [*record, *command]))
        except subprocess.TimeoutExpired:
            return Row(script, "stopped", 0, 0, 0, 0.0, args.limit_seconds, "took too long")
        row = Row(script, recorded, 0, 0, 0, 0.0, time.monotonic() - began)
        if plain != recorded:
            row.wrong = f"without the recorder: {plain}"
        try:
            for file in environment.files(folder / "run.rsc"):
                found = read(file)
                for run in found.passes:
                    for side in (run.before, run.after):
                        for content in (side or {}).values():
                            found.text(content)
                row.files += 1
                row.passes += len(found.passes)
                row.failed += sum(p.failure is not None for p in found.passes)
                row.megabytes += file.stat().st_size / 2**20
                row.wrong = row.wrong or found.stopped
        except EngineError as error:
            row.wrong = error.message
        row.wrong = row.wrong or ("" if row.passes else "no pass")
        return row


def _ended(command: list[str], args: argparse.Namespace, folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=_variables(args.engine),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=args.limit_seconds,
        check=False,
    )
    counts = re.findall(r"\b(\d+ (?:passed|failed|skipped|xfailed|xpassed|errors?))\b", done.stdout)
    return ", ".join(counts) or f"status {bool(done.returncode):d}"


if __name__ == "__main__":
    raise SystemExit(main())
