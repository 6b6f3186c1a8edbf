"""What can be compiled for is found out from the machine, and tried."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from answers import answer
from relascope.core.errors import EngineError
from relascope.engine.building.cpu import cpu_info, cpu_name, cpu_words, lacking
from relascope.engine.building.devices import Tvm, default_target, torch_device
from relascope.engine.protocol.target_text import gpu_index, parse_target, refused, typed, without
from relascope.engine.protocol.targets import Target

BASE = ["pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16"]
AVX = [*BASE, "avx"]
AVX2 = [*AVX, *["avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"]]
AVX512 = [*AVX2, *["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]]

NEHALEM = frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"})
HASWELL = NEHALEM | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
SKYLAKE = HASWELL | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "pku"}
KNOWN = {
    "x86-64": frozenset({"sse2", "64bit"}),
    "nehalem": NEHALEM,
    "sandybridge": NEHALEM | {"avx"},
    "haswell": HASWELL,
    "znver2": HASWELL | {"mwaitx", "wbnoinvd"},
    "skylake-avx512": SKYLAKE,
    "cascadelake": SKYLAKE | {"avx512vnni"},
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


def test_the_processor_is_told_in_words_and_capped_on_request(tmp_path, monkeypatch):
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
    listing = tmp_path / "cpuinfo"
    listing.write_text(f"flags\t\t: {' '.join(AVX512)}\n")
    monkeypatch.setenv("RELASCOPE_PROCESSOR", "avx2")
    assert cpu_info(listing)["flags"].split() == AVX2
    monkeypatch.setenv("RELASCOPE_PROCESSOR", "mmx")
    with pytest.raises(EngineError, match="'mmx'"):
        cpu_info(listing)


TRIPLES = ("nonsense", "armv99-linux-gnu", "x86_64-linux-gnu", "arm64-apple-ios", "armv7l-linux")
BETTER = "llvm -mcpu=skylake-avx512"
REFUSED = {
    "": "begin with its kind",
    "foo": "foo",
    "llvm haswell": "'haswell'",
    "llvm -mcpu=": "'-mcpu='",
    "llvm -foo=1": "foo",
    "llvm -mcpu=haswel": "no processor 'haswel'",
    "llvm -mattr=+avx2,+frobs": "no feature 'frobs'",
    "cuda -arch=bogus": "bogus",
    "vulkan": "without vulkan",
}
ELSEWHERE = {
    "cuda -arch=sm_90": "NVIDIA",
    "cuda -arch=sm_90 -gpu=1": "NVIDIA",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1": "aarch64",
    "llvm -mtriple=x86_64-apple-darwin": "Darwin",
    "opencl": "opencl",
}
HERE = ("llvm", "llvm -num-cores=4", "llvm -mtriple=x86_64-linux-gnu")

EXAMINED = """
import json
from relascope.engine.{ir}.building.targets import parse, target, targets
from relascope.engine.protocol.plain import plain
from relascope.core.errors import EngineError
parse("llvm")
import tvm

def asked(question, text):
    try:
        return question(text)
    except EngineError as error:
        return [error.kind, error.message, error.hint]

def archlist(name):
    return len(tvm.target.codegen.llvm_get_cpu_archlist(parse(f"llvm -mtriple={{name}}"))) > 0

def examined(text):
    found = target(text)
    return [found.runs_here, found.device, found.missing]

print(json.dumps([dict((t, asked(archlist, t)) for t in {triples!r}),
                  dict((t, asked(examined, t)) for t in {texts!r}), plain(targets())]))
"""


@pytest.fixture(scope="module", params=["relay", "relax"])
def said(request):
    """What a process says of triples and of targets; one process, for starting it takes seconds."""
    texts = [*REFUSED, *ELSEWHERE, *HERE, BETTER]
    code = EXAMINED.format(ir=request.param, triples=TRIPLES, texts=texts)
    # Without a visible device, a machine with a GPU is like one without.
    return answer(code, CUDA_VISIBLE_DEVICES="")


def test_an_architecture_that_llvm_lacks_is_refused_before_tvm_dies_of_it(said):
    triples = dict(said[0])
    for name, part in (("nonsense", "nonsense"), ("armv99-linux-gnu", "armv99")):
        kind, message, hint = triples.pop(name)
        assert kind == "target" and part in message and "x86_64" in hint
    assert set(triples.values()) == {True}


@pytest.mark.parametrize("said", ["relay"], indirect=True)
def test_the_cpu_runs_here_and_cuda_says_what_is_missing(said):
    targets = said[2]
    assert [t["runs_here"] for t in targets] == [True] * 6 + [False]
    tuned, *ways, cpu, cuda = targets
    libraries = [f"{cpu['name']} -libs={name}" for name in ("mkl", "openblas")]
    ours = [f"{library} -schedules=relascope" for library in libraries]
    assert {w["name"] for w in ways} == {*libraries, *ours}
    assert tuned["name"] == f"{ways[0]['name']} -records=relascope"
    assert ways[0]["name"] in ours
    assert cpu["name"].startswith("llvm") and "core" in cpu["device"]
    flags = cpu_info(Path("/proc/cpuinfo"))["flags"].split()
    assert ("AVX" in cpu["device"]) == ("avx" in flags)
    assert ("-mcpu=" in cpu["name"]) or "pni" not in flags
    assert cuda["name"] == "cuda"
    assert "NVIDIA" in cuda["missing"] and cuda["missing"].endswith(".")


def test_a_target_that_is_typed_is_told_of_in_sentences(said):
    _, targets, _ = said
    for text, part in REFUSED.items():
        kind, message, hint = targets[text]
        assert kind == "target" and hint, text
        assert part in message, (text, message)
        assert "Traceback" not in message and "Target creation" not in message
    for text, part in ELSEWHERE.items():
        runs, _, missing = targets[text]
        assert runs is False, text
        assert part in missing and missing.endswith("."), (text, missing)
    assert all(targets[text][0] is True for text in HERE), targets
    assert "neoverse-n1" in targets["llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"][1]


def test_code_for_a_better_processor_is_not_run(said):
    flags = cpu_info(Path("/proc/cpuinfo"))["flags"].split()
    runs, _, missing = said[1][BETTER]
    assert runs is ("avx512vl" in flags)
    assert ("avx512vl" in missing) is ("avx512vl" not in flags)


def test_what_a_processor_lacks():
    info = {"flags": "avx abm"}
    assert lacking(frozenset({"avx", "lzcnt", "avx2", "fma", "64bit"}), info) == ["avx2", "fma"]
    assert lacking(frozenset({"avx2"}), {}) == []
    assert cpu_name(frozenset(AVX2), "GenuineIntel", {}) == ""


def test_options_have_the_types_that_tvm_wants():
    kind, options = parse_target("llvm -mcpu=970 -mattr=+a,-b --num-cores=4 -fast-math -x=no")
    about = {"mcpu": "970", "mattr": ["+a", "-b"], "num-cores": 4, "fast-math": True, "x": "no"}
    assert (kind, typed(options)) == ("llvm", about)
    assert without("cuda -gpu=1 -arch=sm_90 -s=x -s=y", ("gpu", "-s=x")) == "cuda -arch=sm_90 -s=y"


def test_which_gpu_a_target_is_for():
    assert [gpu_index(t) for t in ("cuda", "cuda -gpu=3")] == [0, 3]
    assert [torch_device(t) for t in ("cuda", "cuda -gpu=1", "llvm")] == ["cuda", "cuda:1", "cpu"]
    with pytest.raises(EngineError, match="not the number of a GPU"):
        gpu_index("cuda -gpu=first")
    found = tuple(Target(n, "a GPU", True) for n in ("cuda", "cuda -gpu=1", "llvm", "llvm -libs=b"))
    assert default_target(found, torch.device("cuda", 1)) == "cuda -gpu=1"
    assert default_target(found, torch.device("cuda", 0)) == "cuda"
    assert default_target(found, torch.device("cpu")) == "llvm -libs=b"


def test_a_refusal_keeps_what_tvm_says_of_it():
    said = (
        "Traceback (most recent call last):\n  0: tvm::Target\nTVMError: ValueError[21:01:33] "
        'target_kind.cc:151: InternalError: Check failed: (StartsWith(arch, "sm_")) is false: '
        "ValueError: CUDA target gets an invalid CUDA arch\n. Target creation from string failed: x"
    )
    error = refused(RuntimeError(said), "cuda -arch=x")
    assert error.message == "TVM refuses this target: CUDA target gets an invalid CUDA arch."


def gpu(name="a GPU", version="9.0"):
    about = {"device_name": name, "compute_version": version, "device_type": 2, "exist": True}
    return SimpleNamespace(**about, total_global_memory=85_520_809_984)


def fake_tvm(gpus, functions, run=lambda target, device, given: given * 2 + 1, ways=None):
    tvm = SimpleNamespace(
        device=lambda kind, at: [*gpus.get(kind, ()), *[SimpleNamespace(exist=False)] * 9][at],
        get_global_func=lambda name, allow_missing: name if name in functions else None,
    )
    return Tvm(tvm, lambda text: None, run, cuda_ways=ways or {})


def test_every_gpu_is_listed_with_what_it_is():
    two = [gpu("NVIDIA H200"), gpu("NVIDIA T4", "7.5")]
    functions = {f"{f}.{k}" for f in ("device_api", "target.build") for k in ("cuda", "metal")}
    found = fake_tvm({"cuda": two, "metal": [gpu("Apple M4")]}, functions).gpus()
    assert [(t.name, t.device, t.runs_here) for t in found] == [
        ("cuda -arch=sm_90", "NVIDIA H200 (79.6 GiB, compute capability 9.0)", True),
        ("cuda -arch=sm_75 -gpu=1", "NVIDIA T4 (79.6 GiB, compute capability 7.5)", True),
        ("metal", "Apple M4 (79.6 GiB)", True),
    ]


CUDA = {"device_api.cuda", "target.build.cuda"}


def test_every_way_of_a_gpu_is_listed_and_tried():
    ways = {"-libs=blas -graphs=cuda": "as graphs", "-libs=blas": "by a library", "": "by itself"}
    found = fake_tvm({"cuda": [gpu("one")]}, CUDA, ways=ways).gpus()
    assert {t.device for t in found} == {"one (79.6 GiB, compute capability 9.0)"}
    assert [(t.name, t.kernels) for t in found] == [
        ("cuda -arch=sm_90 -libs=blas -graphs=cuda", "as graphs"),
        ("cuda -arch=sm_90 -libs=blas", "by a library"),
        ("cuda -arch=sm_90", "by itself"),
    ]
    assert default_target(found, torch.device("cuda")) == "cuda -arch=sm_90 -libs=blas"
    without = fake_tvm({}, CUDA, ways=ways)
    assert len(without.gpus()) == 1
    assert without._kernels("cuda -graphs=cuda -arch=sm_80 -libs=blas") == "as graphs"
    assert without._kernels("cuda -arch=sm_80 -libs=blas") == "by a library"
    assert without._kernels("cuda -arch=sm_80") == "by itself"

    def run(target, device, given):
        if "-libs" in target:
            raise OSError("libcublas.so.12: cannot open shared object file: No such file")
        return given * 2 + 1

    ways = {"-libs=blas": "by a library", "": "by itself"}
    library, itself = fake_tvm({"cuda": [gpu("one")]}, CUDA, run, ways).gpus()
    assert not library.runs_here and itself.runs_here
    assert "libcublas.so.12 is missing" in library.missing and library.missing.endswith(".")


def test_a_gpu_that_computes_wrongly_or_is_not_there_does_not_run():
    wrong = fake_tvm({"cuda": [gpu()]}, CUDA, lambda t, d, given: np.zeros_like(given))
    (found,) = wrong.gpus()
    assert not found.runs_here and "wrong numbers" in found.missing

    def missing(functions):
        return [(t.name, t.missing) for t in fake_tvm({}, functions).gpus()]

    ((name, said),) = missing(set())
    assert name == "cuda" and "built without cuda" in said
    ((name, said),) = missing({"target.build.cuda", "target.build.opencl"})  # nothing drives either
    assert name == "cuda" and "no NVIDIA GPU" in said
    kinds = dict(missing({f"{f}.opencl" for f in ("device_api", "target.build")}))
    assert "no device" in kinds["opencl"]
