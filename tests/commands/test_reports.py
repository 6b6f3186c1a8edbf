"""Reports of faults run where there is nothing but the TVM and numpy, and end with 0 once fixed.

Each fault is planted in a pass of TVM's: in the engine by a pass before it, in the bare environment
by its TVM. Reports of faults in a person's passes are asked in tests/both/reducing.py.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bare
from quick import rare
from relascope.engine.faults import bundle
from relascope.engine.faults.markdown import LIMIT, fenced, prose, written
from relascope.engine.protocol.fault import Passage
from traces import Fn, save

ROOT = Path(__file__).parents[2]
# A fault from module to module of each TVM.
SWAPPED = {
    "relax": """
import tvm
from tvm import relax

@relax.expr_functor.mutator
class Swap(relax.PyExprMutator):
    def visit_call_(self, call):
        call = super().visit_expr_post_order(call)
        gelu = call.op == tvm.ir.Op.get("relax.nn.gelu")
        return relax.op.nn.relu(call.args[0]) if gelu else call

def wrong(mod):
    swap = Swap(mod)
    for var, function in mod.functions.items():
        swap.builder_.update_func(var, swap.visit_expr(function))
    return swap.builder_.get()
""",
    "relay": """
import tvm
from tvm import relay

class Swap(relay.ExprMutator):
    def visit_call(self, call):
        call = super().visit_call(call)
        return relay.tanh(call.args[0]) if call.op == relay.op.get("erf") else call

def wrong(mod):
    made = tvm.IRModule({**dict(mod.functions), "main": Swap().visit(mod["main"])})
    return relay.transform.InferType()(made)
""",
}
PLANTED = """
import sys
@tvm.transform.module_pass(opt_level=0, name="planted")
def planted(mod, context):
    return wrong(mod)

def make(*arguments, **named):
    return planted

make.__name__, make.__module__ = {name!r}, "tvm.{ir}.transform.transform"
for place in ("tvm.{ir}.transform", "tvm.{ir}.transform.transform"):
    setattr(sys.modules[place], {name!r}, make)
"""
PLANT = """
IR = {ir!r}

def plant(program):
    exec(open({file!r}).read(), {{}})
    return program
"""

RECORD = """
import runpy
if {ir!r} == "relay":
    from relascope.engine.relay.tvm.boot import boot
    boot()
from relascope import recording
with recording({run!r}, "modules"):
    runpy.run_path({script!r})
"""


SMALL = Fn(lambda x, w, b: nn.functional.gelu(nn.functional.linear(x, w, b)).exp(), (8, 8), (8,))


def made(ir, of, folder):
    """The report's folder, and the file that plants the fault in TVM."""
    report, planted = folder / "report", folder / "planted.py"
    if of == "recording":
        script = ROOT / "tests" / ir / "support" / "wrong_pass.py"
        run = folder / "run.rsc"
        (folder / "record.py").write_text(RECORD.format(ir=ir, run=str(run), script=str(script)))
        done = bare.command(folder / "record.py")
        assert done.returncode == 0, done.stderr
        done = bare.command(ROOT / "cli.py", "open", str(run), "--reduce", str(report))
        assert done.returncode == 0, done.stderr
        return report, ""
    own = folder / "own.py"
    planted.write_text(SWAPPED[ir] + PLANTED.format(ir=ir, name="EliminateCommonSubexpr"))
    own.write_text(PLANT.format(ir=ir, file=str(planted)))
    torch.manual_seed(0)
    given = [str(save(SMALL, (torch.randn(3, 8),), folder / "small.pt")), "--pass-file", str(own)]
    given += ["--passes", "plant|cse|dce", "--engine", ir, "--out", str(report), "--json"]
    done = bare.command(ROOT / "cli.py", "reduce", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["report"], document["verdict"]
    assert document["nodes"] == 1, document["tries"]
    return report, str(planted)


PASSES = """
import os, time
from dataclasses import replace

def crash(program):
    raise ValueError("no axis 7 here")

def other(program):
    raise KeyError("something else entirely, on another line of the file")

def ends(program):
    os.abort()

def leaves(program):
    os._exit(0)

def malformed(program):
    return None

def retyped(program):
    return replace(program, mod=program.mod + 1j)

def hang(program):
    time.sleep(600)

def memory(program):
    kept = [bytes(range(250)) * 100_000 for _ in range(40)]
    time.sleep(600)

def leaks(program):
    os.kept = bytes(range(250)) * 200_000
    return program

def slow(program):
    time.sleep(0.3)
    return program

RUNS = []

def flaky(program):
    RUNS.append(1)
    return replace(program, mod=program.mod + (len(RUNS) == 3))

def right(program):
    return program

def wrong(program):
    return replace(program, mod=program.mod + 1)
"""
ENGINE = """
import time
import numpy as np

typed, array = (lambda value: value), np.asarray

def version():
    return "no TVM"

def read(text, json, constants):
    return complex(text) if "j" in text else float(text)

def check_formed(mod):
    pass

def signature(mod):
    return {}, type(mod).__name__

class runner:
    def __init__(self, mod, values, target, optimised=True):
        self.mod, self.results = mod, lambda: [np.full(3, mod)]

    def __call__(self):
        pass
"""
PROGRAM = """
from dataclasses import dataclass

@dataclass
class NoneProgram:
    mod: object
    params: object
    inputs: object
    outputs: object
"""
REPORT = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from relascope.engine.faults.show import Fault, ProgramCall, main

call = ProgramCall("passes", {name!r})
more = {{"limit": 0.1, **{more!r}}}
sys.exit(main(Fault("t", {kind!r}, "none", "2", (), (), 1, (call,), **more)))
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of an engine whose modules are numbers."""
    folder = tmp_path_factory.mktemp("report")
    for name, content in bundle.sources(["relascope.engine.faults.show"]).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/__init__.py"):
            (folder / name).write_bytes(content)
        else:  # which coverage counts
            (folder / name).symlink_to(ROOT / name.removeprefix("relascope/"))
    made = {"engine/none/faults/replay.py": ENGINE, "passes/none/ir/program.py": PROGRAM}
    for name, text in made.items():
        file = folder / "relascope" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (folder / "passes.py").write_text(PASSES)
    np.savez(folder / "values.npz", **{"expected 0": np.full(3, 2.0)})
    return folder


RAISES = {"crash": "raises", "error": "ValueError: no axis 3 here"}


@pytest.mark.parametrize(
    ("name", "kind", "more", "status", "says"),
    [
        ("wrong", "wrong", {}, 1, "WRONG"),
        ("right", "wrong", {}, 0, "it is fixed"),
        ("crash", "wrong", {}, 2, "another way"),
        ("crash", "crash", RAISES, 1, "shows"),
        ("other", "crash", RAISES, 2, "another"),
        ("right", "crash", RAISES, 0, "fixed"),
        ("malformed", "crash", {"crash": "malformed"}, 1, "returned NoneType, not float"),
        ("retyped", "crash", {"crash": "malformed"}, 1, "returned complex, not float"),
        ("ends", "crash", {"crash": "ends"}, 1, "ended by SIGABRT in the passes"),
        ("leaves", "crash", {"crash": "ends"}, 1, "ended by exit status 0 in the passes"),
        ("ends", "wrong", {}, 2, "another way"),
        ("hang", "crash", {"crash": "seconds", "seconds": 0.2}, 1, "did not end within 0.2 s"),
        ("right", "crash", {"crash": "seconds", "seconds": 60.0}, 0, "fixed"),
        ("memory", "crash", {"crash": "memory", "memory": 100.0}, 1, "more than 100 MiB"),
        ("right", "crash", {"crash": "memory", "memory": 100.0}, 0, "fixed"),
        ("leaks", "memory", {"limit": 20 << 20}, 1, "MiB; the limit is 20.0 MiB"),
        ("right", "memory", {"limit": 20 << 20}, 0, "fixed"),
        ("slow", "long", {"limit": 0.2}, 1, "the limit is 0.2 s"),
        ("right", "long", {"limit": 0.2}, 0, "fixed"),
        ("flaky", "wrong", {"runs": 2}, 0, "fixed"),
        ("flaky", "wrong", {"runs": 3}, 1, "WRONG"),
        ("missing", "wrong", {}, 2, "\nUndecided"),
    ],
)
def test_the_exit_status_of_a_report(report, name, kind, more, status, says):
    (report / "report.py").write_text(REPORT.format(name=name, kind=kind, more=more))
    found, said = bare.run(Path(sys.executable), report)
    assert (found, says in said) == (status, True), said


def test_a_function_is_tried_in_place_of_the_pass(report, tmp_path):
    (report / "report.py").write_text(REPORT.format(name="wrong", kind="wrong", more={}))
    (tmp_path / "fix.py").write_text("def fix(program):\n    return program\n")
    for name, status in (("fix", 0), ("nothing", 2)):
        found, said = bare.run(Path(sys.executable), report, "--fix", f"{tmp_path}/fix.py:{name}")
        assert found == status, said


@pytest.mark.parametrize("of", ["file", rare("recording")])
@pytest.mark.parametrize("ir", ["relax", rare("relay")])
def test_a_report_runs_bare_and_ends_with_0_once_fixed(ir, of, tmp_path, tmp_path_factory):
    report, planted = made(ir, of, tmp_path)
    python = bare.python(ir, tmp_path_factory.getbasetemp())
    status, said = bare.run(python, report, isolated=True, planted=planted)
    assert (status, "The fault shows." in said) == (1, True), said
    (tmp_path / "fixed.py").write_text("def fixed(mod):\n    return mod\n")
    options = ("--fix", f"{tmp_path / 'fixed.py'}:fixed")
    status, said = bare.run(python, report, *options, planted=planted)
    assert (status, "it is fixed" in said) == (0, True), said
    if planted:
        status, said = bare.run(python, report)
        assert (status, "it is fixed" in said) == (0, True), said
        ours = {p.stem for p in report.glob("relascope/passes/re*/**/*.py")}
        more = {"weight_gradient"} if ir == "relay" else set()  # an operator of ours
        assert ours <= {"__init__", "program", "rewrite", *more}  # what the machine's replay reads
        more = bare.importing(ir, python)
        the_script_in_the_markdown_runs(python, report / "README.md", tmp_path, planted, more)


def the_script_in_the_markdown_runs(python, markdown, folder, planted, more):
    """It fails with the fault that the text tells of, and ends well where the pass is right."""
    text = markdown.read_text()
    (code,) = re.findall(r"^```python\n(import.*?)^```$", text, re.MULTILINE | re.DOTALL)
    alone = folder / "alone"
    alone.mkdir()
    (alone / "report.py").write_text(code)
    status, said = bare.run(python, alone, planted=planted, more=more)
    rows = re.findall(r"^\| 0 \| \[.*?\] \| (\S+) \| (\S+) \|$", text, re.MULTILINE)
    if rows:  # the values that are told are those that the script sees
        assert (status, "Not equal to tolerance" in said) == (1, True), said
        off = max(abs(float(seen) - float(expected)) for expected, seen in rows)
        assert re.search(r"Max absolute difference[^:]*: (\S+)", said)[1][:5] == f"{off}"[:5]
    assert (status, "No module" in said) == (1, False), said
    assert bare.run(python, alone, more=more) == (0, "")


def test_a_report_of_huge_modules_stays_below_the_limit_of_a_comment():
    lines = "\n".join(f"  %{i} = add(%x, %y) /* `{i}` */;" for i in range(60_000))
    rows = tuple({"argument": f"`p{i}`", "type": "float32[2]"} for i in range(5000))
    whole = {"before": lines, "after": f"```\n{lines}", "message": "x" * 10**6}
    parts = [Passage("Long words", "several words of it " * 9000)]
    parts += [Passage(n, "", code, file=f"{n}.txt") for n, code in whole.items()]
    parts += [Passage("Script", "", "print(1)\n" * 1500, "python"), Passage("Table", rows=rows)]
    files = {name: text.decode() for name, text in written("t", parts).items()}
    text = files.pop("README.md")
    assert LIMIT - 5000 < len(text) < LIMIT == 65_536
    assert files == {f"{n}.txt": code for n, code in whole.items()}
    assert all(f"`{name}` in the report's folder has all of it" in text for name in files)
    assert "print(1)\n" * 1500 in text and "4,960 more." in text
    fences = re.findall(r"^(`{3,})\w*$", text, re.MULTILINE)
    assert fences == ["```"] * 2 + ["````", "```", "````"] + ["```"] * 4
    assert text.count("<details>") == text.count("</details>") == 2
    short = written("t", [Passage("Before", "", "a\nb\n", file="before.txt")])
    assert short == {"README.md": b"# t\n\n### Before\n\n```\na\nb\n```\n"}


def test_no_name_in_a_sentence_calls_a_person_or_is_taken_for_html():
    told = prose("Of @main, <b> and `@main x` (see #12)")
    assert told == "Of `@main,` `<b>` and `@main x` (see `#12)`"


@pytest.mark.parametrize(("text", "fence"), [("x `y`", "```"), ("a\n```\nb", "````"), ("", "```")])
def test_no_text_ends_its_block_of_markdown(text, fence):
    assert fenced(text, "python") == f"{fence}python\n{text}\n{fence}"
