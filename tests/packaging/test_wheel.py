"""The wheel, installed where no checkout is, does what the documentation says of it; and the
constraints pin what the requirements name."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from browser import Server
from once import made_once
from place import ROOT
from relascope.engine.protocol.source import source_from_file
from relascope.passes.catalogue import default_pipeline
from relascope.viz.sessions import replay
from relascope.viz.sessions.state import ModelChoice, Session

ROOMS = sorted(p.parent.name for p in ROOT.glob("*/__init__.py") if p.parent.name != "relascope")
RELAY_WHEEL = ("bitblas", "bitblas-0.1.0.dist-info")


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel, and a folder outside any checkout; `relay` is where the
    wheel with Relay's TVM lies, if elsewhere."""

    folder: Path
    relay: Path | None = None

    def run(
        self, *command: str, relay: bool = True, status: int = 0
    ) -> subprocess.CompletedProcess:
        program = self.folder / "bin" / command[0]
        place = {"cwd": self.work, "env": self.variables(relay), "timeout": 1800}
        told = {"capture_output": True, "text": True, "check": False}
        done = subprocess.run([program, *command[1:]], **place, **told)
        assert done.returncode == status, done.stderr
        return done

    def document(self, *command: str, relay: bool = True, status: int = 0) -> dict:
        return json.loads(self.run(*command, "--json", relay=relay, status=status).stdout)

    def variables(self, relay: bool = True) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return {**kept, "PYTHONPATH": str(self.relay)} if relay and self.relay else kept

    @property
    def work(self) -> Path:
        place = self.folder / "work"
        place.mkdir(exist_ok=True)
        return place


class Saved(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first, last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.body = torch.nn.Sequential(first, torch.nn.GELU(), torch.nn.Dropout(0.1), last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def python(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", *map(str, arguments)], check=True, stdout=sys.stderr)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    (made,) = made_once(tmp_path_factory, "wheel", build_wheel).glob("*.whl")
    return made


def build_wheel(place: Path) -> None:
    """Of a copy of the checkout, which so gets no folder of a build."""
    left = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*ROOMS, "relascope", ".streamlit"):
        shutil.copytree(ROOT / name, place / "source" / name, ignore=left, symlinks=True)
    needs = "requirements.txt", "requirements-onnxruntime.txt"
    for name in ("pyproject.toml", "setup.py", *needs, "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / "source")
    build = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", place)
    python("pip", "wheel", *build, place / "source")


@pytest.fixture(
    scope="session", params=["borrowed", pytest.param("own", marks=pytest.mark.exhaustive)]
)
def environment(request, wheel, tmp_path_factory) -> Environment:
    """A fresh environment with the wheel in it; what relascope depends on is the tests' own, or
    comes from the registry, as the constraints pin it."""
    folder = tmp_path_factory.mktemp("environment")
    if request.param == "own":
        python("venv", folder)
        own = Environment(folder)
        pins = ROOT / "constraints" / f"python-{sysconfig.get_python_version()}.txt"
        own.run("python", "-m", "pip", "install", "--quiet", "-c", str(pins), str(wheel))
        own.run("relascope", "install-relay")
        return own
    python("venv", "--without-pip", folder)
    install = ("install", "--no-deps", "--no-index", "--no-compile", "--quiet", wheel)
    python("pip", "--python", folder / "bin" / "python", *install)
    borrowed, relay = folder / "borrowed" / "site-packages", folder / "relay"
    for place in (borrowed, relay):  # Streamlit takes one that is not in site-packages for a clone
        place.mkdir(parents=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("relascope", "__pycache__")):
            ((relay if entry.name in RELAY_WHEEL else borrowed) / entry.name).symlink_to(entry)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    return Environment(folder, relay)


def test_the_wheel_brings_one_name_and_every_file_of_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0] for name in names} == {"relascope", "relascope-0.3.0.dist-info"}
    here = {
        str(Path("" if room == "relascope" else "relascope") / path.relative_to(ROOT))
        for room in (*ROOMS, "relascope")
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "relascope/py.typed" in here
    here.add("relascope/viz/.streamlit/config.toml")
    assert {n for n in names if ".dist-info/" not in n} == here


HEAVY = {"altair", "networkx", "numpy", "scipy", "streamlit", "torch", "transformers", "tvm"}


def test_little_is_imported_until_it_is_needed(environment):
    code = "import sys, relascope, {}; print(relascope.__file__);"
    code += "print(*{{name.partition('.')[0] for name in sys.modules}})"
    for module, allowed in (
        *(("relascope", set()), ("relascope.commands.main", set())),
        ("relascope.commands.handing_on", {"numpy"}),  # with the cuts and all of a command's files
    ):
        where, loaded = environment.run("python", "-c", code.format(module)).stdout.splitlines()
        assert Path(where).is_relative_to(environment.folder)
        assert HEAVY & set(loaded.split()) == allowed
    assert "install-relay" in environment.run("relascope", "--help").stdout


@pytest.mark.exhaustive
@pytest.mark.engine
@pytest.mark.parametrize("ir", ["relay", "relax"])
def test_a_replay_file_of_the_checkout_finds_the_same_here(environment, ir, tmp_path, monkeypatch):
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
        (tmp_path / name).mkdir()
    model = tmp_path / "saved.pt"
    torch.jit.trace(Saved().train(), torch.ones(4, 8), check_trace=False).save(model)
    source = source_from_file(model, training=True)
    model_of = ModelChoice(model.name, source.digest, inputs="x=4x8:float32", training=True)
    last = len(default_pipeline(ir, True)) - 1
    asked = {n: {} for n in ("cut", "errors", "accuracy", "bisection", "profile")}
    graphs = {str(at): {} for at in range(-1, last + 1)}
    session = Session(ir=ir, model=model_of, results={"steps": [], "graphs": graphs, **asked})
    file = tmp_path / "session.zip"
    replay.write(file, session, model)
    command = [sys.executable, "-m", "relascope", "replay", file, "--json"]
    there = json.loads(subprocess.run(command, stdout=subprocess.PIPE, cwd=tmp_path).stdout)
    assert not {n: p for n, p in there["results"].items() if "error" in p}
    replay.write(file, replace(session, results=there["results"]), model)
    here = environment.document("relascope", "replay", str(file))
    assert here["same"], here["differences"]
    assert here["compared"] == sorted(session.results)
    hashes = [graph["hash"] for graph in here["results"]["graphs"].values()]
    assert hashes == [graph["hash"] for graph in there["results"]["graphs"].values()]


@pytest.mark.exhaustive
@pytest.mark.engine
def test_the_training_loop_of_the_documentation_runs(environment):
    text = (ROOT / "docs" / "in-your-code.md").read_text(encoding="utf-8")
    loop = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    assert "from relascope import add_tvm_dispatch" in loop
    (environment.work / "train.py").write_text(loop)
    assert environment.run("python", "train.py").stdout == "{'tvm': 3, 'own': 0}\n"


@pytest.mark.engine
def test_engines_says_what_is_here_and_what_is_missing(environment):
    bare = environment.relay is not None  # then Relay's wheel is left out
    found = environment.document("relascope", "engines", relay=not bare)
    relay, relax = found["engines"]
    assert relax["version"].startswith("0.27.")
    assert relax["error"] is None
    assert any(target.startswith("llvm") for target in relax["targets"])
    if bare:
        assert relay["version"] is None
        assert "relascope install-relay" in relay["error"]["message"]
    else:
        assert Path(relay["path"]).is_relative_to(environment.folder)
        assert relay["error"] is None


@pytest.mark.engine
def test_without_relay_a_sentence_names_the_command_that_installs_it(environment):
    if environment.relay is None:
        environment.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "bitblas")
    try:
        done = environment.run("relascope", "graph", "mlp", relay=False, status=1)
        (error, _hint) = done.stderr.splitlines()
        assert re.fullmatch(r"error: [^.]*`python -m relascope install-relay`[^.]*\. \(.*\)", error)
        os.environ["PIP_NO_INDEX"] = "1"
        failed = environment.document("relascope", "install-relay", relay=False, status=1)
        assert failed["error"]["message"].startswith("pip could not install bitblas==0.1.0")
    finally:
        os.environ.pop("PIP_NO_INDEX", None)
        if environment.relay is None:
            environment.run("relascope", "install-relay")


class Installed(Server):
    def __init__(self, environment: Environment) -> None:
        super().__init__(ROOT / "app.py")
        self.environment = environment

    def __enter__(self) -> "Installed":
        command = [str(self.environment.folder / "bin/relascope"), "--no-browser"]
        variables, folder = self.environment.variables(), self.environment.work
        self.start([*command, "--port", str(self.port)], cwd=folder, env=variables)
        return self


@pytest.fixture
def served(environment) -> Iterator[Server]:
    with Installed(environment) as server:
        yield server


@pytest.mark.engine
@pytest.mark.browser
def test_the_console_script_opens_the_page_with_a_graph_on_this_machine_alone(served, chromium):
    with pytest.raises(ConnectionRefusedError):  # of another address of this machine
        socket.create_connection(("127.0.0.2", served.port), timeout=5).close()
    page = chromium.new_page()
    page.goto(f"{served.url}/?model=mlp")
    page.locator(".rs[data-ready]:visible").wait_for(timeout=120_000)
    assert page.get_by_text("Traceback").count() == 0
    page.close()


FILES = ("requirements.txt", "requirements-onnxruntime.txt", "requirements-test.txt")


def requirements() -> list[Requirement]:
    lines = [line for name in FILES for line in (ROOT / name).read_text().splitlines()]
    bare = [line.partition("#")[0].strip() for line in lines]
    return [Requirement(line) for line in bare if line and not line.startswith("-r")]


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12"])
def test_constraints_agree_with_the_requirements(version):
    lines = (ROOT / "constraints" / f"python-{version}.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==[a-z0-9.]+", line) for line in lines)
    pins = dict(line.split("==") for line in lines)
    assert len(pins) > 90  # what is brought along, too
    about = {"python_version": version}
    here = [r for r in requirements() if not r.marker or r.marker.evaluate(about)]
    assert len(here) > 20
    assert {r.name: str(r.specifier) for r in here} == {r.name: f"=={pins[r.name]}" for r in here}
