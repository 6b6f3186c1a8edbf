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

import pytest
from on_gpu import pack, parts, running
from on_gpu.record import Record, markdown
from on_gpu.running import Part

from place import ROOT
from relascope.core.errors import EngineError

FAKE = """
import json, os, subprocess, sys, time
name, engine, fd = sys.argv[1], sys.argv[2], int(sys.argv[3])
def say(**row):
    os.write(fd, (json.dumps(row) + "\\n").encode())
if name == "looks":
    say(gpu=os.environ["FAKE_GPU"], said="looked", environment={"TOLD": "1"})
elif name == "hangs":
    child = subprocess.Popen(["sleep", "600"])
    say(ms=1.5, pid=child.pid, told=os.environ.get("TOLD"))
    time.sleep(600)
elif name == "dies":
    print("the reason", file=sys.stderr)
    sys.exit(3)
else:
    say(what="quick", of_eager=0.4, of_eager_most=0.5)
    say(what="slow", of_eager=0.7, of_eager_most=0.5)
    say(what="rival", of_eager=0.7, of_eager_most=None)
"""
PARTS = (
    Part("looks", "Looking", "torch", 20.0, 1.0, "fake_parts"),
    Part("hangs", "Hanging", "relax", 1.0, 1.0, "fake_parts"),
    Part("dies", "Dying", "relax", 20.0, 1.0, "fake_parts"),
    Part("figures", "Figures", "relay", 20.0, 1.0, "fake_parts"),
)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Parts that do as the tests wish, on a GPU that is not here."""
    (tmp_path / "fake_parts.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("FAKE_GPU", "NVIDIA Made-Up 9000")
    monkeypatch.setattr(running, "RESULTS", tmp_path / "figures")
    return tmp_path / "figures/nvidia-made-up-9000.json"


def gone(pid):
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text():
            return True
        time.sleep(0.05)
    return False


def test_a_part_that_hangs_or_dies_leaves_what_it_said_and_the_others(fake, capsys):
    assert running.run(None, None, False, None, PARTS) == 1
    document = json.loads(fake.read_text())
    states = {key: part["state"] for key, part in document["parts"].items()}
    assert states["looks, torch"] == states["figures, relay"] == "done"
    assert states["hangs, relax"] == "killed at its limit of 1 s"
    assert states["dies, relax"].endswith("with 3; the reason")
    (row,) = document["parts"]["hangs, relax"]["rows"]
    assert row["ms"] == 1.5 and row["told"] == "1" and gone(row["pid"])
    assert "MISSED: figures, relay: slow: 0.7, at most 0.5" in capsys.readouterr().out
    table = fake.with_suffix(".md").read_text()
    assert table.startswith("# NVIDIA Made-Up 9000\n") and "| slow | 0.7 | 0.5 |" in table
    assert table == markdown(document)


def test_a_part_ends_with_the_bench(fake, tmp_path):
    """What is left is `sleep`, which watches nobody; an engine watches who started it."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from on_gpu import running\n"
        "part = running.Part('hangs', 'Hanging', 'relax', 600.0, 1.0, 'fake_parts')\n"
        "for row in running.rows(part, False, 600.0, {}):\n"
        "    print(row['pid'], flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(ROOT / "bench")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        left = int(bench.stdout.readline())
        part = int(Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[1])
        bench.kill()
    assert gone(part)
    os.kill(left, signal.SIGKILL)


def test_a_part_alone_takes_its_own_place_in_the_record(fake):
    running.run(["figures"], None, False, None, PARTS)
    assert list(json.loads(fake.read_text())["parts"]) == ["figures, relay"]
    running.run(["looks"], None, False, None, PARTS)
    assert running.run(["figures"], ["relax"], False, None, PARTS) == 0  # none of that engine
    assert list(json.loads(fake.read_text())["parts"]) == ["figures, relay", "looks, torch"]
    assert running.run(["bogus"], None, False, None, PARTS) == 2


def test_a_dry_run_is_never_taken_for_a_gpus(fake, monkeypatch, capsys, tmp_path):
    assert running.run(["looks"], None, True, None, PARTS) == 1  # there is a GPU
    running.run(["looks"], None, False, None, PARTS)
    monkeypatch.setenv("FAKE_GPU", "")
    assert running.run(["looks"], None, False, None, PARTS) == 1
    assert "--dry-run" in capsys.readouterr().err
    assert running.run(["looks"], None, True, fake, PARTS) == 1
    assert "is of NVIDIA Made-Up 9000" in capsys.readouterr().err
    dry = tmp_path / "dry.json"
    assert running.run(["looks"], None, True, dry, PARTS) == 0
    assert dry.with_suffix(".md").read_text().startswith("# Dry run: no GPU was used")
    with pytest.raises(ValueError, match="dry run's"):
        Record(dry, "NVIDIA Made-Up 9000", False)
    with pytest.raises(ValueError, match="results of GPUs"):
        Record(ROOT / "bench/results/nvidia-made-up-9000.json", "", True)


def test_a_source_that_cannot_be_timed_fails_the_part_behind_the_others(monkeypatch):
    def timed(asked, source, baselines):
        if source == parts._TIMED[0]:
            raise EngineError("engine", "It broke.", "here")
        yield {"ms": 1.0}

    monkeypatch.setattr(parts, "_timed", timed)
    crossed = {"built for": "another"}
    asked = SimpleNamespace(ir="relay", dry=True, crossed=lambda *sources: [crossed])
    rows = []
    with pytest.raises(EngineError, match="It broke"):
        rows.extend(parts.timing(asked))
    assert rows[0]["said"].startswith("FAILED: ") and rows[1:] == [{"ms": 1.0}, crossed]


def test_all_parts_together_fit_ten_minutes():
    assert sum(p.limit for p in running.PARTS) <= running.WHOLE
    order = ["boot", "kernel", "truth", "timing", "graphs", "cublas", "profile", "memory"]
    assert list(dict.fromkeys(p.name for p in running.PARTS)) == order
    assert running.PARTS[0].key == "boot, torch"


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
    assert running.run(None, None, True, output) == 0
    document = json.loads(output.read_text())
    assert document["dry_run"] and document["gpu"] is None
    assert {k: p["state"] for k, p in document["parts"].items()} == {
        p.key: "done" for p in running.PARTS
    }
    for part in document["parts"].values():
        assert any(s.startswith("NOT DONE: ") for s in part["said"])
        rows = part["rows"]
        assert all(r["DRY RUN"] for r in rows)
        assert not [name for r in rows for name in r if name.endswith(("ms", "_s", "of_eager"))]
    built = [r for r in document["parts"]["truth, relax"]["rows"] if "built for" in r]
    assert {r["built for"] for r in built} == {"cuda -arch=sm_80", "cuda -arch=sm_90"}
