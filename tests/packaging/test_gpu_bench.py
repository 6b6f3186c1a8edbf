"""`bench/gpu.py` without a GPU: parts in processes with limits, its record."""

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace

import gpu
import pytest

from place import ROOT
from relascope.core.errors import EngineError
from relascope.engine.protocol.source import ModelSource

FAKE = """
import subprocess, sys, time
name = sys.argv[1]
if name == "hangs":
    child = subprocess.Popen(["sleep", "600"])
    print("ms 1.5, pid", child.pid, flush=True)
    time.sleep(600)
elif name == "dies":
    sys.exit("the reason")
elif name == "misses":
    print("ratio 0.7, at most 0.5")
    sys.exit(1)
elif name == "breaks":
    print("failed: It broke. (here)")
    sys.exit(1)
print("all is well")
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    (tmp_path / "fake_parts.py").write_text(FAKE)
    monkeypatch.setattr(gpu, "look", lambda: ("NVIDIA Made-Up 9000", "PyTorch sees it."))
    monkeypatch.setattr(gpu, "RESULTS", tmp_path / "figures")
    about = {"hangs": ("relax", 1.0), "dies": ("relax", 20.0), "misses": ("relay", 20.0)}
    about |= {"breaks": ("relay", 20.0), "well": ("", 20.0)}
    script = tmp_path / "fake_parts.py"
    return [gpu.Part(n, n.title(), *of, f"{script} {n}") for n, of in about.items()]


@pytest.fixture
def figures(parts, tmp_path):
    return tmp_path / "figures/nvidia-made-up-9000.md"


def run(parts, part=None, engine=None, dry_run=False, output=None):
    args = SimpleNamespace(part=part, engine=engine, dry_run=dry_run, output=output)
    return gpu.run(args, parts)


def gone(pid):
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text():
            return True
        time.sleep(0.05)
    return False


def test_a_part_that_hangs_or_dies_leaves_what_it_said_and_the_others(parts, figures, capsys):
    assert run(parts) == 1
    record = figures.read_text()
    assert record.startswith("# NVIDIA Made-Up 9000\n")
    assert "## Hangs (hangs, relax)\n\nkilled at its limit of 1 s, of 1 s" in record
    (pid,) = re.findall(r"ms 1.5, pid (\d+)", record)
    assert gone(pid)
    assert "## Dies (dies, relax)\n\nended with 1, of 20 s\n\n```\nthe reason\n```" in record
    assert "ratio 0.7, at most 0.5" in record
    assert "## Well (well)\n\ndone, of 20 s\n\n```\nall is well\n```" in record
    assert "ratio 0.7, at most 0.5\n  state ended with 1" in capsys.readouterr().out


def test_a_missed_bar_alone_is_an_error_and_some_parts_are_kept_where_that_is_asked(
    parts, figures, tmp_path
):
    assert run(parts, ["well"]) == 0
    assert run(parts, ["misses"]) == 1
    assert run(parts, engine=["relay"]) == 1
    assert not figures.exists()
    run(parts, ["well"], output=tmp_path / "well.md")
    assert "all is well" in (tmp_path / "well.md").read_text()


def test_a_dry_run_keeps_nothing_and_no_bar_of_time(parts, figures, monkeypatch, capsys):
    assert run(parts, ["well"], dry_run=True) == 1
    assert "Leave --dry-run out." in capsys.readouterr().err
    monkeypatch.setattr(gpu, "look", lambda: ("", "PyTorch sees no GPU."))
    assert run(parts, ["well"]) == 1
    assert "sees no GPU. Try --dry-run." in capsys.readouterr().err
    timed = [replace(p, script=f"{p.script} --repeats 9") for p in parts]
    assert run(timed, ["misses", "well"], dry_run=True, output=figures) == 0
    assert run(timed, ["breaks"], dry_run=True) == 1
    assert not figures.exists()


def test_a_target_is_found_by_words_that_its_name_has_or_has_not():
    import common

    cuda = "cuda -arch=sm_90"
    graphs = f"{cuda} -libs=blas -graphs=cuda"
    names = ("llvm", graphs, f"{cuda} -libs=blas", cuda, f"{cuda} -gpu=1")
    targets = [SimpleNamespace(name=n, runs_here=True, missing="") for n in names]
    info = SimpleNamespace(targets=targets)
    client = SimpleNamespace(call=lambda method: info, ir="relax")
    assert common.target(client) == "llvm"
    wanted = {"cuda": graphs, "-graphs=cuda": graphs}  # the default on a GPU
    wanted |= {"cuda !-graphs": f"{cuda} -libs=blas", "cuda !-libs !-graphs": cuda}
    assert {words: common.target(client, words) for words in wanted} == wanted
    with pytest.raises(EngineError, match="no target rocm"):
        common.target(client, "rocm")


def test_what_fails_and_what_misses_its_bar_is_said(tmp_path, capsys):
    import common

    asked = ["mlp", "--engine", "relax", "-o", str(tmp_path / "new/rows.json")]
    args = common.options("").parse_args(asked)

    def rows(client, ir, source):
        if source.seed:
            raise EngineError("target", "It has none.", "llvm", "Wait.")
        yield {"engine": ir, "sample": source.model, "ratio": 0.7}

    sources = [ModelSource("mlp"), ModelSource("mlp", seed=1), ModelSource("resnet")]
    good, bad = common.measured(args, sources, rows)
    assert (good["ratio"], bad["missed"]) == (0.7, "failed: It has none. (llvm) Wait.")
    assert common.finish(args, [good, bad], lambda row: ["a ratio above 0.5"]) == 1
    where, out = "\nengine relax, sample mlp: ", capsys.readouterr().out
    assert out.endswith(f"{where}a ratio above 0.5{where}{bad['missed']}\n")
    assert bad["missed"] in args.output.read_text()
    assert common.finish(args, [good]) == 0


OURS = (
    *("tvm", "tvm_ffi", "bitblas", "attr", "attrs", "cloudpickle", "decorator", "psutil"),
    *("elftools", "pyelftools", "ml_dtypes", "scipy", "apache_tvm", "relascope", "_distutils"),
)


@pytest.mark.exhaustive
def test_the_lines_of_the_docs_take_it_to_a_machine_without_our_environment_or_a_network(tmp_path):
    """With its first parts, as on a machine that has PyTorch, transformers and networkx alone."""
    site, theirs = Path(distribution("torch").locate_file("")), tmp_path / "theirs"
    text = (ROOT / "docs/targets.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```\n(# here.*?)```", text, re.DOTALL)
    lines = lines.replace(".venv/lib/python3.12/site-packages", str(site)).replace("xz ", "xz -0 ")
    here, there = lines.split("# there")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    theirs.mkdir()
    for entry in site.iterdir():
        if not entry.name.startswith(OURS) and entry.suffix != ".pth":
            (theirs / entry.name).symlink_to(entry)
    packed = ["bash", "-euo", "pipefail", "-c", here.partition("\n")[2]]
    subprocess.run(packed, cwd=tmp_path, check=True)
    assert all(p.stat().st_size <= 60 << 20 for p in tmp_path.glob("tvms.tar.xz.*"))
    options = f"{ROOT}/bench/gpu.py --dry-run --part engines --part kernel"
    unpacked = there.partition("\n")[2].replace("bench/gpu.py", options)
    unpacked = unpacked.replace("PYTHONPATH=tvms", f"PYTHONPATH={tmp_path}/tvms:{theirs}")
    alone = ["unshare", "--map-root-user", "--net", "bash", "-euo", "pipefail", "-c", unpacked]
    path = f"{tmp_path}/venv/bin:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path)}
    done = subprocess.run(alone, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n  state done\n") == 3
    assert "mlp (relay), target" in done.stdout


@pytest.mark.exhaustive
def test_the_whole_dry_run(capsys):
    assert run(gpu.PARTS, dry_run=True) == 0
    assert capsys.readouterr().out.count("\n  state done\n") == len(gpu.PARTS)
