"""Reports of faults run where there is nothing but the TVM and numpy, and end with 0 once fixed.

Each fault is planted: in a pass of a person's file, in a pass of relascope's (in a copy of the
checkout), in one of TVM's (in the engine by a pass before it, in the bare environment by its TVM).
"""

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bare
from relascope.engine.faults import bundle
from relascope.engine.faults.markdown import LIMIT, fenced, prose, written
from relascope.engine.protocol.fault import Passage
from traces import save

ROOT = Path(__file__).parents[2]
SECONDS, MEMORY = "6", "400"

# Faults from module to module; those of `WHERE` alone show them.
FAULTS = """
import ctypes, time
import tvm

def found(mod):
    return WHERE in str(mod)

def wrong(mod):
    return swapped(mod)

def crash(mod):
    if found(mod):
        raise ValueError("no axis 7 here")
    return mod

def ends(mod):
    if found(mod):
        ctypes.string_at(0)
    return mod

def malformed(mod):
    return None if found(mod) else mod

def hang(mod):
    while found(mod):
        time.sleep(0.1)
    return mod

def memory(mod):
    kept = []
    while found(mod):
        kept.append(bytes(range(250)) * 100_000)
        time.sleep(0.005)
    return mod
"""
SWAPPED = {
    "relax": """
from tvm import relax
WHERE = "nn.gelu"

@relax.expr_functor.mutator
class Swap(relax.PyExprMutator):
    def visit_call_(self, call):
        call = super().visit_expr_post_order(call)
        gelu = call.op == tvm.ir.Op.get("relax.nn.gelu")
        return relax.op.nn.relu(call.args[0]) if gelu else call

def swapped(mod):
    swap = Swap(mod)
    for var, function in mod.functions.items():
        swap.builder_.update_func(var, swap.visit_expr(function))
    return swap.builder_.get()
""",
    "relay": """
from tvm import relay
WHERE = "erf("

class Swap(relay.ExprMutator):
    def visit_call(self, call):
        call = super().visit_call(call)
        return relay.tanh(call.args[0]) if call.op == relay.op.get("erf") else call

def swapped(mod):
    made = tvm.IRModule({**dict(mod.functions), "main": Swap().visit(mod["main"])})
    return relay.transform.InferType()(made)
""",
}
OWN = """
from dataclasses import replace
IR = {ir!r}

def fault(program):
    return replace(program, mod={kind}(program.mod))
"""
FIXED = "def fault(program):\n    return program\n"
PLANTED = """
import sys
@tvm.transform.module_pass(opt_level=0, name="planted")
def planted(mod, context):
    return {kind}(mod)

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
OURS = "\n\ndef _fault(program):\n    from dataclasses import replace\n"

MODULES = {
    "relax": """
from tvm.script import ir as I
from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            a = R.sin(x)
            b = R.nn.gelu(a)
            c = R.exp(b)
            R.output(c)
        return c
""",
    "relay": """#[version = "0.0.5"]
def @main(%x: Tensor[(4, 8), float32]) -> Tensor[(4, 8), float32] {
  %0 = sin(%x);
  %1 = erf(%0);
  exp(%1)
}
""",
}

RECORD = """
import runpy
if {ir!r} == "relay":
    from relascope.engine.relay.tvm.boot import boot
    boot()
from relascope import recording
with recording({run!r}, "modules"):
    runpy.run_path({script!r})
"""


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return nn.functional.gelu(self.fc(x)).exp()


@dataclass(frozen=True)
class Row:
    """One report: of whose pass, in what, of what kind."""

    ir: str
    whose: str
    of: str
    kind: str

    def __str__(self):
        return "-".join((self.ir, self.whose, self.of, self.kind))


TABLE = """
user model wrong; user model crash; user model slow; user model memory; user model hang
user file wrong; user file ends; user module malformed; user module wrong
tvm model wrong; tvm model crash; tvm model memory; tvm model hang
tvm file wrong; tvm file malformed; tvm module ends
ours model wrong; ours file crash; ours module hang
user recording wrong
"""
ROWS = [
    Row(ir, *cell.split())
    for ir in ("relax", "relay")
    for line in TABLE.strip().splitlines()
    for cell in line.split(";")
]
LIMITS = {"hang": ("--limit-seconds", SECONDS), "memory": ("--limit-memory", MEMORY)}
TVMS, OURS_NAME = ("cse", "EliminateCommonSubexpr"), "transpose_dedup"


def model_of(row, folder):
    if row.of == "model":
        return "mlp"
    if row.of == "file":
        torch.manual_seed(0)
        return str(save(Small(), (torch.randn(3, 8),), folder / "small.pt"))
    file = folder / ("module.py" if row.ir == "relax" else "module.relay")
    file.write_text(MODULES[row.ir])
    return str(file)


def fault_of(row, folder):
    """The command's checkout, what it is told of the fault, and how the report is fixed."""
    code = SWAPPED[row.ir] + FAULTS
    if row.whose == "user":
        own = folder / "own.py"
        if row.kind == "slow":
            own.write_text((ROOT / "tests" / row.ir / "support" / "faults.py").read_text())
            own.write_text(own.read_text() + "\n\ndef fault(program):\n    return slow(program)\n")
        else:
            own.write_text(code + OWN.format(ir=row.ir, kind=row.kind))
        before = "linear_to_dense|" if (row.kind, row.ir) == ("slow", "relay") else ""
        passes = f"{before}fault|dce"
        fix = lambda report: (report / "own.py").write_text(FIXED)  # noqa: E731
        return ROOT / "cli.py", ["--pass-file", str(own), "--passes", passes], fix
    if row.whose == "tvm":
        name, title = TVMS
        planted, own = folder / "planted.py", folder / "own.py"
        planted.write_text(code + PLANTED.format(ir=row.ir, kind=row.kind, name=title))
        own.write_text(PLANT.format(ir=row.ir, file=str(planted)))
        told = ["--pass-file", str(own), "--passes", f"plant|{name}|dce"]
        return ROOT / "cli.py", told, None
    name = "drop_neutral" if row.ir == "relay" else OURS_NAME
    file = f"passes/{row.ir}/{name}.py"
    text = (ROOT / file).read_text()
    body = f"    return replace(program, mod={row.kind}(program.mod))\n"
    rewrites = "    return rewrite(program, "
    before, at, after = text.partition(f"def {OURS_NAME}(")
    assert rewrites in after
    faulty = before + at + after.replace(rewrites, f"    program = _fault(program)\n{rewrites}", 1)
    cli = bare.overlay(folder / "checkout", file, faulty + code + OURS + body)
    fix = lambda report: (report / "relascope" / file).write_text(text)  # noqa: E731
    return cli, ["--passes", f"{OURS_NAME}|dce"], fix


def made(row, folder):
    """The report's folder, how it is fixed, and the file that plants the fault in TVM."""
    report = folder / "report"
    if row.of == "recording":
        script = ROOT / "tests" / row.ir / "support" / "wrong_pass.py"
        run = folder / "run.rsc"
        text = RECORD.format(ir=row.ir, run=str(run), script=str(script))
        (folder / "record.py").write_text(text)
        done = bare.command(folder / "record.py")
        assert done.returncode == 0, done.stderr
        done = bare.command(ROOT / "cli.py", "open", str(run), "--reduce", str(report))
        assert done.returncode == 0, done.stderr
        return report, None, ""
    cli, told, fix = fault_of(row, folder)
    kind = ("--kind", "slow", "--factor", "3", "--batch", "64") if row.kind == "slow" else ()
    given = [model_of(row, folder), "--engine", row.ir, *told, *LIMITS.get(row.kind, ()), *kind]
    done = bare.command(cli, "reduce", *given, "--out", str(report), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["report"], document["verdict"]
    if row.kind != "slow":
        assert document["nodes"] == 1, document["tries"]
    return report, fix, str(folder / "planted.py") if row.whose == "tvm" else ""


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


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    return tmp_path_factory.mktemp("environments")


def few(row):
    """A row for every run; the other rows take minutes each where they hang."""
    return str(row) == "relax-tvm-file-wrong"


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, marks=() if few(r) else pytest.mark.exhaustive, id=str(r)) for r in ROWS],
)
def test_a_report_runs_bare_and_ends_with_0_once_fixed(row, tmp_path, environments):
    report, fix, planted = made(row, tmp_path)
    python = bare.python(row.ir, environments)
    status, said = bare.run(python, report, isolated=True, planted=planted)
    assert (status, "The fault shows." in said) == (1, True), said
    options = ()
    if row.of == "recording":
        (tmp_path / "fixed.py").write_text("def fixed(mod):\n    return mod\n")
        options = ("--fix", f"{tmp_path / 'fixed.py'}:fixed")
    elif fix is not None:
        fix(report)
    status, said = bare.run(python, report, *options)
    assert (status, "it is fixed" in said) == (0, True), said
    if row.whose == "tvm":
        ours = {p.stem for p in report.glob("relascope/passes/re*/**/*.py")}
        more = {"weight_gradient"} if row.ir == "relay" else set()  # an operator of ours
        assert ours <= {"__init__", "program", "rewrite", *more}  # what the machine's replay reads
        (tmp_path / "fixed.py").write_text("def fixed(mod):\n    return mod\n")
        options = ("--fix", f"{tmp_path / 'fixed.py'}:fixed")
        status, said = bare.run(python, report, *options, planted=planted)
        assert status == 0, said
    # What is planted in Relay's pass raises, on a weight of too many numbers for a script.
    scripted = row.whose == "tvm" or str(row) == "relax-ours-model-wrong"
    if scripted and row.kind in ("wrong", "malformed"):
        more = bare.importing(row.ir, python)
        homes = (tmp_path / "checkout", ROOT) if row.whose == "ours" else ("", "")
        paths = [os.pathsep.join(filter(None, (str(h), more.get("PYTHONPATH")))) for h in homes]
        envs = [more | {"PYTHONPATH": path} for path in paths]
        the_script_in_the_markdown_runs(python, report / "README.md", tmp_path, planted, envs)


def the_script_in_the_markdown_runs(python, markdown, folder, planted, envs):
    """It fails with the fault that the text tells of, and ends well where the pass is right."""
    text = markdown.read_text()
    (code,) = re.findall(r"^```python\n(import.*?)^```$", text, re.MULTILINE | re.DOTALL)
    alone = folder / "alone"
    alone.mkdir()
    (alone / "report.py").write_text(code)
    status, said = bare.run(python, alone, planted=planted, more=envs[0])
    rows = re.findall(r"^\| 0 \| \[.*?\] \| (\S+) \| (\S+) \|$", text, re.MULTILINE)
    if rows:  # the values that are told are those that the script sees
        assert (status, "Not equal to tolerance" in said) == (1, True), said
        off = max(abs(float(seen) - float(expected)) for expected, seen in rows)
        assert re.search(r"Max absolute difference[^:]*: (\S+)", said)[1][:5] == f"{off}"[:5]
    assert (status, "No module" in said) == (1, False), said
    assert bare.run(python, alone, more=envs[1]) == (0, "")


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
