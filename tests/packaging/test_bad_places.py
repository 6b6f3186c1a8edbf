"""What is said where relascope cannot run, and to scripts from before it was one package."""

import json
import subprocess
import sys

import pytest

import relascope.commands.installation as installation
import relascope.commands.main as cli
from place import ROOT
from relascope import core
from relascope.core import place
from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.relay.tvm import find


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("engine.dispatch", "from relascope import add_tvm_dispatch, remove_tvm_dispatch"),
        ("samples", "from relascope.samples import build"),
        ("passes.pipeline", "import relascope.passes"),
        ("viz.page", "import relascope.viz"),
    ],
)
def test_an_old_script_is_given_the_new_line(old, new):
    done = subprocess.run(
        [sys.executable, "-c", f"import {old}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert last == f"ImportError: relascope is one package now. Write: {new}"


@pytest.mark.parametrize("version", [(3, 9, 1), (3, 13, 0)])
def test_another_python_is_refused_in_a_sentence(version, monkeypatch, capsys):
    monkeypatch.setattr(place.sys, "version_info", version)
    assert cli.main(["graph", "mlp", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == "relascope needs Python 3.10, 3.11 or 3.12."
    assert error["where"].startswith(f"this is Python 3.{version[1]}")
    with pytest.raises(EngineError, match=r"needs Python 3\.10"):
        core.place.check_python()


def test_a_package_that_is_missing_is_named(monkeypatch, capsys):
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    monkeypatch.setattr(cli, "_module", fail)
    assert cli.main(["models"]) == 1
    assert "No module named 'scipy'" in capsys.readouterr().err


def test_relay_is_not_installed_on_a_machine_that_it_is_not_for(monkeypatch, capsys):
    monkeypatch.delenv(find.SETTING, raising=False)
    monkeypatch.setattr(find.platform, "machine", lambda: "aarch64")
    assert cli.main(["install-relay"]) == 1
    assert "needs Linux on an x86-64 processor" in capsys.readouterr().err


def test_relay_is_not_installed_beside_another_that_goes_first(monkeypatch, capsys):
    monkeypatch.setenv(find.SETTING, "/somewhere")
    assert cli.main(["install-relay"]) == 2
    assert find.SETTING in capsys.readouterr().err


def test_installing_relay_loads_it_once(monkeypatch, capsys):
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.delenv(find.SETTING, raising=False)
    monkeypatch.setattr(installation.subprocess, "run", run)
    connect = lambda ir: EngineClient(ir, session="page_session:PageSession")  # noqa: E731
    status = cli.main(["install-relay", "--force"], connect)
    told = capsys.readouterr()
    assert status == 0, told.err
    assert "bitblas==0.1.0 carries TVM" in told.out
    (command,) = commands
    assert command[-3:] == ["--no-deps", "--force-reinstall", find.WHEEL]
