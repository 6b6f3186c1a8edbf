"""The Relay TVM is found and loaded on machines with and without CUDA libraries.

Each boot happens in a process of its own: a TVM cannot be unloaded.
"""

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

import answers
from answers import refused
from limits import ELEMENTWISE
from place import ROOT
from relascope.core.errors import EngineError
from relascope.engine.relay.tvm import boot as booting
from relascope.engine.relay.tvm import cuda_stubs
from relascope.engine.relay.tvm import find as finding


def answer(code: str, tmp_path: Path, **environment: str):
    """Of a process that has no other variables, nor a program in its path."""
    empty = tmp_path / "bin"
    empty.mkdir(exist_ok=True)
    return answers.answer(code, {"PATH": str(empty), "HOME": str(tmp_path)}, **environment)


@pytest.fixture(scope="module")
def needs():
    found = finding.installation()
    assert found.origin == "bitblas" and found.library is not None
    return cuda_stubs.read_needs(found.library)


LIBRARIES = ("libcuda.so.1", "libcudart.so.12", "libnvrtc.so.12")
BOOT = """
import json
from relascope.engine.relay.tvm import boot
boot.boot()
import tvm
print(json.dumps([boot._booted.origin, tvm.__version__[:4]]))
"""
RELAY_FUNCTION = """
import json, os, sys
from relascope.engine.relay.tvm.boot import LOADED, boot, child_environment, cuda_missing
boot()
boot()
import numpy as np, tvm
from tvm import relay
from tvm.contrib import graph_executor
x = relay.var("x", shape=(4, 3))
mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, x))))
built = relay.build(mod, target="llvm")
runtime = graph_executor.GraphModule(built["default"](tvm.cpu()))
a = np.arange(12, dtype="float32").reshape(4, 3) - 5
runtime.run(x=a)
error = float(np.abs(runtime.get_output(0).numpy() - np.maximum(a @ a.T, 0)).max())
try:
    tvm.nd.empty((1,), device=tvm.cuda(0))
    gpu = ""
except tvm.TVMError as raised:
    gpu = str(raised).splitlines()[-1]
print(json.dumps({
    "looks": [hasattr(x, "missing"), [int(d) for d in x.type_annotation.shape[-2:]]],
    "error": error, "file": tvm.__file__, "cuda": tvm.cuda(0).exist, "gpu": gpu,
    "bitblas": "bitblas" in sys.modules, "missing": cuda_missing(),
    "other": "TVM_LIBRARY_PATH" not in os.environ,
    "libraries": {c.name: [c.real, c.path, c.note] for c in LOADED}, "child": child_environment(),
}))
"""


def test_relay_builds_and_runs_without_compiler_driver_or_library_path(tmp_path):
    said = answer(RELAY_FUNCTION, tmp_path)
    assert said["error"] < ELEMENTWISE and "bitblas" in said["file"]
    assert said["looks"] == [False, [4, 3]]
    assert not said["bitblas"], "bitblas itself must not be imported"
    assert said["other"], "a process that it starts has the other TVM"
    assert set(said["libraries"]) == set(LIBRARIES)
    if not said["libraries"]["libcudart.so.12"][0]:
        # TVM asks the stub for the text of its error, and must survive the answer.
        assert "libcudart.so.12 is not on this machine" in said["gpu"]
        assert not said["cuda"]
    # Another process of TVM imports it by the environment alone.
    code = "import json, tvm, tvm.relay\nprint(json.dumps(tvm.__file__))"
    assert answer(code, tmp_path, **said["child"]) == said["file"]


def test_wanted_symbols_are_read_from_the_library(needs):
    driver, runtime, nvrtc = (booting.wanted_of(needs, library) for library in LIBRARIES)
    assert {"cuLaunchKernel", "cuModuleLoadData"} <= {s.name for s in driver}
    assert cuda_stubs.Symbol("cudaMalloc", LIBRARIES[1], LIBRARIES[1]) in runtime
    assert ({s.version for s in driver}, {s.version for s in nvrtc}) == ({""}, {LIBRARIES[2]})
    # zlib's functions have no version either, and are not the driver's.
    assert "crc32" in {s.name for s in needs.wanted}
    assert all(s.name.startswith("cu") and s.name[2].isupper() for s in driver)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stub_has_every_wanted_symbol(needs, library, tmp_path):
    wanted = booting.wanted_of(needs, library)
    path = tmp_path / library
    path.write_bytes(cuda_stubs.stub_library(library, wanted))
    with path.open("rb") as file:
        (dynamic,) = (s for s in ELFFile(file).iter_segments() if isinstance(s, DynamicSegment))
        assert next(dynamic.iter_tags("DT_SONAME")).soname == library
        symbols = list(dynamic.iter_symbols())[1:]
    assert {s.name for s in symbols} == {*(s.name for s in wanted), cuda_stubs.MARKER}
    assert all(s["st_shndx"] != "SHN_UNDEF" for s in symbols)
    # The loader's own word on versions.
    stub, look_up = ctypes.CDLL(str(path)), ctypes.CDLL(None).dlvsym
    look_up.restype, look_up.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *2 * [ctypes.c_char_p]]
    for s in wanted:
        assert hasattr(stub, s.name)
        if s.version:
            assert look_up(stub._handle, s.name.encode(), s.version.encode())
            assert not look_up(stub._handle, s.name.encode(), b"other")


def test_stubs_answer_as_cudas_libraries_do_without_a_device(needs, tmp_path):
    wanted = booting.wanted_of(needs, "libcudart.so.12")
    path = tmp_path / "libcudart.so.12"
    path.write_bytes(cuda_stubs.stub_library(path.name, wanted))
    driver = tmp_path / "libcuda.so.1"
    driver.write_bytes(cuda_stubs.stub_library(driver.name, (cuda_stubs.Symbol("cuGetErrorName"),)))
    code = f"""
import ctypes, json
stub = ctypes.CDLL({str(path)!r}, ctypes.RTLD_GLOBAL)
text = stub.cudaGetErrorString
text.restype = ctypes.c_char_p
names = {[s.name for s in wanted if "GetError" not in s.name]}
told = [text(100).decode(), sorted(set(stub[name](1, 2, 3) for name in names))]
driver, out = ctypes.CDLL({str(driver)!r}), ctypes.c_char_p()
print(json.dumps([*told, driver.cuGetErrorName(100, ctypes.byref(out)), out.value.decode()]))
"""
    told = [f"{library} is not on this machine" for library in (path.name, driver.name)]
    assert answer(code, tmp_path) == [told[0], [cuda_stubs.NO_DEVICE], 0, told[1]]


def disguised(name: str, symbols: tuple[cuda_stubs.Symbol, ...], folder: Path) -> None:
    """Write a library that passes for a real one: what marks a stub is renamed away."""
    folder.mkdir(exist_ok=True)
    content = cuda_stubs.stub_library(name, symbols)
    marker = cuda_stubs.MARKER.encode()
    assert marker in content
    (folder / name).write_bytes(content.replace(marker, b"x" * len(marker)))


def test_an_old_driver_without_the_right_runtime_still_boots_and_says_so(needs, tmp_path):
    wanted = booting.wanted_of(needs, "libcuda.so.1")
    old = tuple(s for s in wanted if not s.name.startswith("cuTensorMap"))
    disguised("libcuda.so.1", old, tmp_path / "lib")
    said = answer(RELAY_FUNCTION, tmp_path, LD_LIBRARY_PATH=str(tmp_path / "lib"))
    assert said["error"] < ELEMENTWISE
    real, _, note = said["libraries"]["libcuda.so.1"]
    assert real and len(wanted) - len(old) == 2
    assert "too old for this TVM: it lacks 2 of the functions that TVM calls" in note
    assert note in said["missing"]
    if not said["libraries"]["libcudart.so.12"][0]:
        assert "driver is installed, but not" in said["missing"]
        assert "nvidia-cuda-runtime-cu12" in said["missing"]


def test_asking_whether_it_is_available_loads_nothing(tmp_path):
    said = answer(
        "import json, sys\nfrom relascope.engine.relay.tvm.find import available\n"
        "error = available()\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(json.dumps([error is None, [m for m in ('tvm', 'torch', 'bitblas', 'numpy') "
        "if m in sys.modules], 'libtvm' in maps]))",
        tmp_path,
    )
    assert said == [True, [], False]


def test_the_setting_names_another_tvm_and_stubs_go_elsewhere_than_a_cache_that_is_shut(
    tmp_path, monkeypatch
):
    other = Path(importlib.util.find_spec("bitblas").submodule_search_locations[0])
    link = tmp_path / "mine"
    link.symlink_to(other / "3rdparty" / "tvm")
    for folder in (link, link / "python"):
        monkeypatch.setenv(finding.SETTING, str(folder))
        found = finding.installation()
        assert found.origin == finding.SETTING and found.library.is_file()
    (tmp_path / "file").write_text("in the way")
    elsewhere = {"XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path)}
    said = answer(BOOT, tmp_path, RELASCOPE_RELAY_TVM=str(link), **elsewhere)
    assert said == [finding.SETTING, "0.17"]
    assert not list(tmp_path.glob("relascope-*")), "the temporary folder was left behind"


def forget_other_tests(monkeypatch) -> None:
    """Another test may have booted in this process; here it is to be as if none had."""
    monkeypatch.setattr(booting, "_booted", None)
    monkeypatch.delitem(sys.modules, "tvm", raising=False)


def no_tvm(monkeypatch, folder: Path) -> EngineError:
    forget_other_tests(monkeypatch)
    monkeypatch.setenv(finding.SETTING, str(folder))
    error = finding.available()
    assert error is not None and error.kind == "engine" and error.hint
    with pytest.raises(EngineError):
        booting.boot()
    return error


def test_the_setting_names_no_tvm_that_works(monkeypatch, tmp_path):
    error = no_tvm(monkeypatch, tmp_path)
    assert "has no package tvm" in error.message and error.where == str(tmp_path)
    assert "does not name a folder" in no_tvm(monkeypatch, tmp_path / "nowhere").message
    (tmp_path / "python" / "tvm").mkdir(parents=True)
    assert "no Relay" in no_tvm(monkeypatch, tmp_path).message
    (tmp_path / "python" / "tvm" / "relay").mkdir(parents=True)
    (tmp_path / "python" / "tvm" / "relay" / "__init__.py").touch()
    (tmp_path / "build").mkdir()
    library = tmp_path / "build" / "libtvm.so"
    forget_other_tests(monkeypatch)
    monkeypatch.setenv(finding.SETTING, str(tmp_path))
    for content in (b"", b"not a library at all", b"\x7fELF\x02\x01" + b"\0" * 20):
        library.write_bytes(content)
        with refused(match="cannot be read", where=str(library)):
            booting.boot()


def test_machines_without_it_are_told_why(monkeypatch):
    monkeypatch.delenv(finding.SETTING, raising=False)
    monkeypatch.setattr(finding.importlib.util, "find_spec", lambda name: None)
    assert "relascope install-relay" in finding.available().message
    monkeypatch.setattr(finding.platform, "machine", lambda: "aarch64")
    error = finding.available()
    assert "x86-64" in error.message and finding.SETTING in error.hint


BOOT_REFUSED = """
import json, sys
{before}
from relascope.engine.relay.tvm.boot import boot
from relascope.core.errors import EngineError
try:
    boot()
    print(json.dumps(None))
except EngineError as error:
    print(json.dumps(error.to_json()))
"""


def test_what_is_imported_already_or_missing_is_named(tmp_path):
    package = tmp_path / "other" / "tvm"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    both = os.pathsep.join([str(package.parent), str(ROOT)])
    said = answer(BOOT_REFUSED.format(before="import tvm"), tmp_path, PYTHONPATH=both)
    assert "already imported" in said["message"] and str(package) in said["where"]
    before = "sys.modules['decorator'] = None"
    said = answer(BOOT_REFUSED.format(before=before), tmp_path)
    assert said["kind"] == "engine"
    assert "decorator" in said["message"] and "decorator" in said["hint"]
