"""`bench/gpu.py` without a GPU: parts in processes with limits, its record."""

import json
import os
import re
import signal
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

FAKE = """
import json, os, subprocess, sys, time
name, rows = sys.argv[1], sys.argv[-1]
def say(**row):
    with open(rows, "a") as file:
        file.write(json.dumps(row) + "\\n")
if name == "looks":
    say(gpu=os.environ["FAKE_GPU"], said="looked", environment={"GIVEN": "1"})
elif name == "hangs":
    child = subprocess.Popen(["sleep", "600"])
    say(ms=1.5, pid=child.pid, given=os.environ.get("GIVEN"))
    time.sleep(600)
elif name == "dies":
    print("the reason", file=sys.stderr)
    sys.exit(3)
else:
    say(what="quick", ratio=0.4, missed="")
    say(what="slow", ratio=0.7, missed="0.7, at most 0.5")
    say(what="broken", missed="failed: It broke. (here)")
    say(what="rival", ratio=0.7, missed="")
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    (tmp_path / "fake_parts.py").write_text(FAKE)
    monkeypatch.setenv("FAKE_GPU", "NVIDIA Made-Up 9000")
    monkeypatch.setattr(gpu, "RESULTS", tmp_path / "figures")
    about = {"looks": ("torch", 20.0), "hangs": ("relax", 1.0), "dies": ("relax", 20.0)}
    about["figures"] = ("relay", 20.0)
    script = tmp_path / "fake_parts.py"
    return [
        gpu.Part(name, name.title(), engine, limit, f"{script} {name}")
        for name, (engine, limit) in about.items()
    ]


@pytest.fixture
def figures(parts, tmp_path):
    return tmp_path / "figures/nvidia-made-up-9000.json"


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
    document = json.loads(figures.read_text())
    states = {key: part["state"] for key, part in document["parts"].items()}
    assert states["looks, torch"] == states["figures, relay"] == "done"
    assert states["hangs, relax"] == "killed at its limit of 1 s"
    assert states["dies, relax"].endswith("with 3; the reason")
    (row,) = document["parts"]["hangs, relax"]["rows"]
    assert row["ms"] == 1.5 and row["given"] == "1" and gone(row["pid"])
    printed = capsys.readouterr().out
    assert "MISSED: figures, relay: what slow, ratio 0.7, missed 0.7, at most 0.5" in printed
    assert "MISSED: figures, relay: what broken, missed failed: It broke. (here)" in printed
    assert printed.count("MISSED") == 2
    table = figures.with_suffix(".md").read_text()
    assert table.startswith("# NVIDIA Made-Up 9000\n")
    assert "| slow | 0.7 | 0.7, at most 0.5 |" in table
    assert table == gpu.markdown(document)


def test_a_missed_bar_alone_is_an_error(parts):
    assert run(parts, ["looks"]) == 0
    assert run(parts, ["figures"]) == 1


def test_a_part_ends_with_the_bench(parts):
    """What is left is `sleep`, which watches nobody; an engine watches who started it."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import gpu\n"
        "part = gpu.Part('hangs', 'Hanging', 'relax', 600.0, sys.argv[2])\n"
        "for row in gpu.rows(part, False, 600.0, {}):\n"
        "    print(row['pid'], flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(ROOT / "bench"), parts[1].script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        left = int(bench.stdout.readline())
        part = int(Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[1])
        bench.kill()
    assert gone(part)
    os.kill(left, signal.SIGKILL)


def test_a_part_alone_takes_its_own_place_in_the_record(parts, figures):
    run(parts, ["figures"])
    assert list(json.loads(figures.read_text())["parts"]) == ["figures, relay"]
    run(parts, ["looks"])
    assert run(parts, ["figures"], ["relax"]) == 0  # none of that engine
    assert list(json.loads(figures.read_text())["parts"]) == ["figures, relay", "looks, torch"]
    assert run(parts, ["bogus"]) == 2


def test_a_dry_run_keeps_nothing_and_no_bar_of_time(parts, figures, monkeypatch, capsys):
    assert run(parts, ["looks"], dry_run=True) == 1
    assert "There is a GPU here: leave --dry-run out." in capsys.readouterr().err
    monkeypatch.setenv("FAKE_GPU", "")
    assert run(parts, ["looks"]) == 1
    assert "There is no GPU here: with --dry-run" in capsys.readouterr().err
    timed = [replace(p, script=f"{p.script} --repeats 9") for p in parts]
    assert run(timed, ["looks", "figures"], dry_run=True) == 1  # what broke
    assert capsys.readouterr().out.count("MISSED") == 1
    assert run(parts, ["looks"], dry_run=True, output=figures) == 0
    assert not figures.parent.exists()


def test_a_record_is_of_one_gpu(parts, figures, monkeypatch, capsys):
    run(parts, ["looks"])
    monkeypatch.setenv("FAKE_GPU", "NVIDIA Made-Up 9001")
    assert run(parts, ["looks"], output=figures) == 1
    assert "is of NVIDIA Made-Up 9000" in capsys.readouterr().err


def test_a_target_is_found_by_words_that_its_name_has_or_has_not(monkeypatch):
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):  # which the bench sets for itself
        monkeypatch.setenv(name, os.environ[name])
    import common

    cuda = "cuda -arch=sm_90"
    graphs = f"{cuda} -libs=blas -graphs=cuda"
    names = ("llvm", graphs, f"{cuda} -libs=blas", cuda, f"{cuda} -gpu=1")
    targets = [SimpleNamespace(name=n, runs_here=True, missing="") for n in names]
    info = SimpleNamespace(targets=targets)
    client = SimpleNamespace(call=lambda method: info, ir="relax")
    assert common.target(client) == "llvm"
    assert common.target(client, "cuda") == graphs  # the default on a GPU
    assert common.target(client, "cuda !-graphs") == f"{cuda} -libs=blas"
    assert common.target(client, "cuda !-libs !-graphs") == cuda
    assert common.target(client, "-graphs=cuda") == graphs
    with pytest.raises(EngineError, match="no target rocm"):
        common.target(client, "rocm")


def test_what_is_timed_beside_the_default_is_another_target(monkeypatch):
    said = []
    monkeypatch.setattr(gpu, "_run", lambda words, *_: said.append(words) or iter(()))
    for part in gpu.PARTS:
        if part.name in ("graphs", "cublas"):
            list(gpu.rows(part, False, 20.0, {}))
    beside = [[w for w, flag in zip(x[1:], x, strict=False) if flag == "--target"] for x in said]
    assert beside == 2 * [["cuda !-graphs"]] + 2 * [["cuda !-libs !-graphs"]]
    assert all("--target=cuda" in x for x in said)
    said.clear()
    list(gpu.rows(gpu.PARTS[-1], True, 20.0, {}))
    assert said[0].count("--target") == 1 and said[0][-4:-2] == ["--tokens", "14"]


def test_the_parts_of_each_engine_fit_ten_minutes():
    for ir in ("relax", "relay"):
        assert sum(p.limit for p in gpu.PARTS if p.engine in (ir, "torch")) <= gpu.WHOLE / 2
    order = ["boot", "kernel", "truth", "timing", "graphs", "cublas", "profile", "memory"]
    assert list(dict.fromkeys(p.name for p in gpu.PARTS)) == order
    assert gpu.PARTS[0].key == "boot, torch"


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
    options = f"{ROOT}/bench/gpu.py --dry-run --part boot --part kernel"
    unpacked = there.partition("\n")[2].replace("bench/gpu.py", options)
    unpacked = unpacked.replace("PYTHONPATH=tvms", f"PYTHONPATH={tmp_path}/tvms:{theirs}")
    alone = ["unshare", "--map-root-user", "--net", "bash", "-euo", "pipefail", "-c", unpacked]
    path = f"{tmp_path}/venv/bin:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path)}
    done = subprocess.run(alone, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n  state done\n") == 5
    assert "engine relay, sample mlp" in done.stdout


@pytest.mark.exhaustive
def test_the_whole_dry_run(capsys):
    assert run(gpu.PARTS, dry_run=True) == 0
    assert capsys.readouterr().out.count("\n  state done\n") == len(gpu.PARTS)
