"""What can be compiled for is found out from the machine, and tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cpu import cpu_info, cpu_name, cpu_words

ROOT = Path(__file__).resolve().parent.parent

BASE = ["pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16"]
AVX = [*BASE, "avx"]
AVX2 = [*AVX, *["avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"]]
AVX512 = [*AVX2, *["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]]

KNOWN = {
    name: frozenset(features.split())
    for name, features in {
        "x86-64": "sse2 64bit",
        "nehalem": "sse3 ssse3 sse4.1 sse4.2 popcnt cx16",
        "sandybridge": "sse3 ssse3 sse4.1 sse4.2 popcnt cx16 avx",
        "haswell": "sse3 ssse3 sse4.1 sse4.2 popcnt cx16 avx avx2 fma f16c bmi bmi2 lzcnt movbe",
        "znver2": "sse3 ssse3 sse4.1 sse4.2 popcnt cx16 avx avx2 fma f16c bmi bmi2 lzcnt movbe"
        " mwaitx wbnoinvd",
        "skylake-avx512": "sse3 ssse3 sse4.1 sse4.2 popcnt cx16 avx avx2 fma f16c bmi bmi2 lzcnt"
        " movbe avx512f avx512bw avx512cd avx512dq avx512vl pku",
        "cascadelake": "sse3 ssse3 sse4.1 sse4.2 popcnt cx16 avx avx2 fma f16c bmi bmi2 lzcnt"
        " movbe avx512f avx512bw avx512cd avx512dq avx512vl avx512vnni pku",
    }.items()
}


@pytest.mark.parametrize(
    ("flags", "vendor", "expected"),
    [
        ([], "GenuineIntel", "x86-64"),
        (AVX, "GenuineIntel", "sandybridge"),
        (AVX2, "GenuineIntel", "haswell"),
        (AVX2, "AuthenticAMD", "znver2"),  # what only programs ask for may be hidden
        ([f for f in AVX2 if f != "fma"], "AuthenticAMD", "sandybridge"),
        (AVX512, "GenuineIntel", "skylake-avx512"),
        ([f for f in AVX512 if f != "avx512vl"], "GenuineIntel", "haswell"),
        ([*AVX512, "avx512_vnni"], "AuthenticAMD", "cascadelake"),
    ],
)
def test_the_processor_is_chosen_by_what_is_there(flags, vendor, expected):
    assert cpu_name(frozenset(flags), vendor, KNOWN) == expected


def test_no_name_where_llvm_knows_none():
    assert cpu_name(frozenset(AVX2), "GenuineIntel", {}) == ""


def test_the_processor_in_words(tmp_path):
    listing = tmp_path / "cpuinfo"
    listing.write_text(
        "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz\n"
        "flags\t\t: fpu avx avx2\n\nprocessor\t: 1\nmodel name\t: another\n"
    )
    info = cpu_info(listing)
    words = cpu_words(info, frozenset(info["flags"].split()))
    assert words.startswith("the CPU (Intel Xeon E5-2680 v4, AVX2, ")
    assert words.endswith(("core)", "cores)"))
    assert cpu_info(tmp_path / "none") == {}


def found(**environment: str) -> list[dict]:
    return answer(
        "import json\nfrom engine.relay.targets import targets\nfrom engine.session import plain\n"
        "print(json.dumps(plain(targets())))", **environment,
    )  # fmt: skip


def answer(code: str, **environment: str):
    """What the code prints last, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_cpu_runs_here_and_cuda_says_what_is_missing():
    # Without a visible device, a machine with a GPU is like one without.
    targets = found(CUDA_VISIBLE_DEVICES="")
    assert [t["runs_here"] for t in targets] == [True, True, False]
    cpu, blas, cuda = targets
    assert blas["name"] == f"{cpu['name']} -libs=mkl"
    assert cpu["name"].startswith("llvm")
    assert "core" in cpu["device"]
    flags = cpu_info(Path("/proc/cpuinfo"))["flags"].split()
    assert ("AVX" in cpu["device"]) == ("avx" in flags)
    assert ("-mcpu=" in cpu["name"]) or "pni" not in flags
    assert cuda["name"] == "cuda"
    assert cuda["missing"].endswith((".", "process."))
    assert "NVIDIA" in cuda["missing"]


TRIPLES = """
import json
from engine.{ir}.targets import parse
from engine.session import EngineError
parse("llvm")
import tvm
said = {{}}
for name in ("nonsense", "armv99-linux-gnu", "x86_64-linux-gnu", "arm64-apple-ios", "armv7l-linux"):
    try:
        target = parse(f"llvm -mtriple={{name}}")
    except EngineError as error:
        said[name] = [error.kind, error.message, error.hint]
    else:
        said[name] = len(tvm.target.codegen.llvm_get_cpu_archlist(target)) > 0
print(json.dumps(said))
"""


@pytest.mark.parametrize("ir", ["relay", "relax"])
def test_an_architecture_that_llvm_lacks_is_refused_before_tvm_dies_of_it(ir):
    said = answer(TRIPLES.format(ir=ir))
    for name, part in (("nonsense", "nonsense"), ("armv99-linux-gnu", "armv99")):
        kind, message, hint = said.pop(name)
        assert kind == "target"
        assert part in message
        assert "x86_64" in hint
    assert set(said.values()) == {True}
