"""`bench/gpu.py` without a GPU: parts in processes with limits, its record, its archives."""

from __future__ import annotations

import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace

import gpu
import gpu_pack as pack
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
    """Parts that do as the tests wish, on a GPU that is not here."""
    (tmp_path / "fake_parts.py").write_text(FAKE)
    monkeypatch.setenv("FAKE_GPU", "NVIDIA Made-Up 9000")
    monkeypatch.setattr(gpu, "RESULTS", tmp_path / "figures")
    about = {"looks": ("torch", 20.0), "hangs": ("relax", 1.0), "dies": ("relax", 20.0)}
    about["figures"] = ("relay", 20.0)
    script = tmp_path / "fake_parts.py"
    return [
        gpu.Part(name, name.title(), engine, limit, f"{script} {name}", open="All of it.")
        for name, (engine, limit) in about.items()
    ]


@pytest.fixture
def figures(parts, tmp_path):
    """Where what is found on that GPU is written."""
    return tmp_path / "figures/nvidia-made-up-9000.json"


def run(parts, part=None, engine=None, dry_run=False, output=None):
    """The bench, as its options ask for it."""
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


def test_a_dry_run_is_never_taken_for_a_gpus(parts, figures, monkeypatch, capsys, tmp_path):
    assert run(parts, ["looks"], dry_run=True) == 1
    assert "There is a GPU here: leave --dry-run out." in capsys.readouterr().err
    run(parts, ["looks"])
    monkeypatch.setenv("FAKE_GPU", "")
    assert run(parts, ["looks"]) == 1
    assert "There is no GPU here: with --dry-run" in capsys.readouterr().err
    assert run(parts, ["looks"], dry_run=True, output=figures) == 1
    assert "is of NVIDIA Made-Up 9000" in capsys.readouterr().err
    dry = tmp_path / "dry.json"
    assert run(parts, ["looks", "figures"], dry_run=True, output=dry) == 1  # what broke
    assert dry.with_suffix(".md").read_text().startswith("# Dry run: no GPU was used")
    part = json.loads(dry.read_text())["parts"]["figures, relay"]
    assert part["said"] == ["NOT DONE: All of it."]
    assert part["rows"][0] == {"DRY RUN": "on the CPU", "what": "quick", "missed": ""}
    with pytest.raises(ValueError, match="dry run's"):
        gpu.Record(dry, "NVIDIA Made-Up 9000", False)
    with pytest.raises(ValueError, match="results of GPUs"):
        gpu.Record(ROOT / "bench/results/nvidia-made-up-9000.json", "", True)


def test_a_dry_run_keeps_no_bar_of_time(monkeypatch):
    said = [{"missed": "0.7, at most 0.5", "median_ms": 1.0}, {"missed": "failed: It broke."}]
    monkeypatch.setattr(gpu, "_run", lambda *_: iter([*said, {"said": "1 ms"}, {"state": "done"}]))
    script = "speed.py mlp --repeats 20 --target GPU"
    part = gpu.Part("timing", "Time", "relax", 20.0, script, open="Times.")
    about = {"DRY RUN": "on the CPU"}
    assert list(gpu.rows(part, True, 20.0, {})) == [
        {**about, "missed": ""},
        {**about, "missed": "failed: It broke."},
        {"said": "NOT DONE: Times."},
        {"state": "done"},
    ]


def test_a_target_is_found_by_words_that_its_name_has_or_has_not(monkeypatch):
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):  # which the bench sets for itself
        monkeypatch.setenv(name, os.environ[name])
    import common

    cuda = "cuda -arch=sm_90"
    names = ("llvm", f"{cuda} -libs=blas", cuda, f"{cuda} -graphs=cuda", f"{cuda} -gpu=1")
    targets = [SimpleNamespace(name=n, runs_here=True, missing="") for n in names]
    info = SimpleNamespace(targets=targets)
    client = SimpleNamespace(call=lambda method: info, ir="relax")
    assert common.target(client) == "llvm"
    assert common.target(client, "cuda") == f"{cuda} -libs=blas"  # the default on a GPU
    assert common.target(client, "cuda !-libs !-graphs") == cuda
    assert common.target(client, "-graphs=cuda") == f"{cuda} -graphs=cuda"
    with pytest.raises(EngineError, match="no target rocm"):
        common.target(client, "rocm")


def test_what_is_timed_beside_the_default_is_another_target(monkeypatch):
    said = []
    monkeypatch.setattr(gpu, "_run", lambda words, *_: said.append(words) or iter(()))
    for part in gpu.PARTS:
        if part.name in ("graphs", "cublas"):
            list(gpu.rows(part, False, 20.0, {}))
    beside = [[w for w, flag in zip(x[1:], x, strict=False) if flag == "--target"] for x in said]
    plain = ["cuda", "cuda !-libs !-graphs"]
    assert beside == [[*plain, "-graphs=cuda"], plain, plain]
    said.clear()
    list(gpu.rows(gpu.PARTS[-1], True, 20.0, {}))
    assert said[0].count("--target") == 1 and said[0][-4:-2] == ["--tokens", "14"]


def test_all_parts_together_fit_ten_minutes():
    assert sum(p.limit for p in gpu.PARTS) <= gpu.WHOLE
    order = ["boot", "kernel", "truth", "timing", "graphs", "cublas", "profile", "memory"]
    assert list(dict.fromkeys(p.name for p in gpu.PARTS)) == order
    assert gpu.PARTS[0].key == "boot, torch"


@pytest.fixture
def small(monkeypatch):
    """Of all that is packed, two small packages; the machine that it is for has neither."""
    few = {"small": {"attrs": ("*",)}, "python": {"ml_dtypes": ("*.py", "*.dist-info/*")}}
    monkeypatch.setattr(pack, "_ARCHIVES", {"relax-compiler": {}, "relay": {}, **few})
    monkeypatch.setattr(pack, "_has", lambda distribution: False)


def test_what_is_packed_is_laid_down_as_it_arrives(small, tmp_path, capsys):
    packed, arrived, place = tmp_path / "packed", tmp_path / "arrived", tmp_path / "place"
    pack.pack(packed, [pack.THIS], 0)
    arrived.mkdir()
    for name in (pack.MANIFEST, "small.tar.xz", "relay.tar.xz", "relax-compiler.tar.xz"):
        (arrived / name).write_bytes((packed / name).read_bytes())
    assert pack.unpack(arrived, place) == 1
    later = f"python-{pack.THIS}.tar.xz"
    assert f"Still wanted: {later}" in capsys.readouterr().out
    assert (place / "attr/__init__.py").exists() and not list(place.glob("**/*.pyc"))
    (arrived / later).write_bytes((packed / later).read_bytes()[:-8] + b"8 others")
    with pytest.raises(pack.DoesNotFit, match="not as it was packed"):
        pack.unpack(arrived, place)
    (arrived / later).write_bytes((packed / later).read_bytes())
    assert pack.unpack(arrived, place) == 0
    assert capsys.readouterr().out.count("laid down") == 1  # the others lay there already
    assert (place / "ml_dtypes/__init__.py").exists()
    manifest = json.loads((arrived / pack.MANIFEST).read_text())
    manifest["archives"][later]["sha256"] = "of one that was packed anew"
    (arrived / pack.MANIFEST).write_text(json.dumps(manifest))
    (arrived / later).unlink()
    assert pack.unpack(arrived, place) == 1  # what lies there is the one before


def test_what_does_not_fit_is_refused_in_a_sentence(small, tmp_path, monkeypatch):
    with pytest.raises(pack.DoesNotFit, match=r"not 3\.13"):
        pack.pack(tmp_path, ["3.13"])
    with pytest.raises(pack.DoesNotFit, match="more than 0 MiB"):
        pack.pack(tmp_path, [pack.THIS], 0, most=1000)
    with pytest.raises(pack.DoesNotFit, match="holds nothing"):
        pack.unpack(tmp_path / "none", tmp_path / "place")
    pack.pack(tmp_path, [pack.THIS], 0)
    monkeypatch.setattr(pack, "THIS", "3.13")
    with pytest.raises(pack.DoesNotFit, match=r"Python 3\.13 .* --python 3\.13"):
        pack.unpack(tmp_path, tmp_path / "place")


def test_nothing_is_laid_down_elsewhere(small, tmp_path):
    pack.pack(tmp_path, [pack.THIS], 0)
    evil = tmp_path / "small.tar.xz"
    with lzma.open(evil, "wb") as out, tarfile.open(fileobj=out, mode="w") as tar:
        pack._add(tar, "attrs/../../outside.py", b"bad")
    document = json.loads((tmp_path / pack.MANIFEST).read_text())
    document["archives"][evil.name]["sha256"] = pack.hashlib.sha256(evil.read_bytes()).hexdigest()
    (tmp_path / pack.MANIFEST).write_text(json.dumps(document))
    with pytest.raises(pack.DoesNotFit, match="nobody packed"):
        pack.unpack(tmp_path, tmp_path / "in/place")
    assert not list(tmp_path.glob("**/outside.py"))


def test_which_wheels_serve_which_python():
    any_python, own, stable = "Tag: py3-none-any", "Tag: cp311-cp311-x", "Tag: cp36-abi3-x"
    assert all(pack._fits(any_python, p) for p in pack.PYTHONS)
    assert [pack._fits(own, p) for p in pack.PYTHONS] == [False, True, False]
    assert all(pack._fits(stable, p) for p in pack.PYTHONS)
    assert [pack._fits("Tag: cp312-abi3-x", p) for p in pack.PYTHONS] == [False, False, True]
    with pytest.raises(pack.DoesNotFit, match="neither here nor"):
        pack._pinned("no-such-package", "3.12")


OURS = (
    *("tvm", "tvm_ffi", "bitblas", "attr", "attrs", "cloudpickle", "decorator", "psutil"),
    *("elftools", "pyelftools", "ml_dtypes", "scipy", "apache_tvm", "relascope", "_distutils"),
)


@pytest.mark.exhaustive
def test_it_runs_from_what_was_unpacked_without_our_environment_or_a_network(tmp_path):
    """With its first parts, as on a machine that has PyTorch, transformers and networkx alone."""
    packed, place, theirs = tmp_path / "packed", tmp_path / "place", tmp_path / "theirs"
    pack.pack(packed, [pack.THIS], 0, most=1 << 30)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    theirs.mkdir()
    for entry in Path(pack.metadata.distribution("torch").locate_file("")).iterdir():
        if not entry.name.startswith(OURS) and entry.suffix != ".pth":
            (theirs / entry.name).symlink_to(entry)
    environment = {
        **{k: os.environ[k] for k in ("PATH", "HOME")},
        "PYTHONPATH": str(theirs),
        "RELASCOPE_GPU_PACK": str(place),
    }

    def bench(*arguments):
        command = ["unshare", "--map-root-user", "--net", str(tmp_path / "venv/bin/python")]
        command += [str(ROOT / "bench/gpu.py"), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    assert "not both TVMs" in bench("--dry-run").stderr
    assert bench("--unpack", str(packed)).returncode == 0
    (first, *_) = place.glob("**/libcudart.so.12")
    assert first.parent.name == "build"
    output = tmp_path / "dry.json"
    done = bench("--dry-run", "--part", "boot", "--part", "kernel", "-o", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    parts = json.loads(output.read_text())["parts"]
    assert [p["state"] for p in parts.values()] == ["done"] * 5
    libraries = {r["library"]: r["is"] for r in parts["boot, relay"]["rows"]}
    assert libraries["libcudart.so.12"] == "real"
    assert any(r.get("sample") == "mlp" for r in parts["kernel, relay"]["rows"])


@pytest.mark.exhaustive
def test_the_whole_dry_run(tmp_path):
    output = tmp_path / "dry.json"
    assert run(gpu.PARTS, dry_run=True, output=output) == 0
    document = json.loads(output.read_text())
    assert document["dry_run"] and document["gpu"] is None
    assert {k: p["state"] for k, p in document["parts"].items()} == {
        p.key: "done" for p in gpu.PARTS
    }
    for part in document["parts"].values():
        assert any(s.startswith("NOT DONE: ") for s in part["said"])
        rows = part["rows"]
        assert all(r["DRY RUN"] for r in rows)
        assert not [name for r in rows for name in r if name.endswith(("ms", "_s", "ratio"))]
    built = [r for r in document["parts"]["truth, relax"]["rows"] if "built for" in r]
    assert {r["built for"] for r in built} == {"cuda -arch=sm_80", "cuda -arch=sm_90"}
