"""What is said where relascope cannot run."""

import subprocess

import pytest

import relascope.commands.installation as installation
import relascope.commands.main as cli
from command_line import document, run
from page_session import session_of
from relascope import core
from relascope.core import place
from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.relay.tvm import find


@pytest.mark.parametrize("version", [(3, 9, 1), (3, 13, 0)])
def test_another_python_is_refused_in_a_sentence(version, monkeypatch):
    monkeypatch.setattr(place.sys, "version_info", version)
    error = document("graph", "mlp", status=2)["error"]
    assert error["message"] == "relascope needs Python 3.10, 3.11 or 3.12."
    assert error["where"].startswith(f"this is Python 3.{version[1]}")
    with pytest.raises(EngineError, match=r"needs Python 3\.10"):
        core.place.check_python()


def test_a_package_that_is_missing_is_named(monkeypatch):
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    monkeypatch.setattr(cli, "_module", fail)
    done = run("models")
    assert done.returncode == 1 and "No module named 'scipy'" in done.stderr


def test_relay_is_not_installed_where_it_is_not_for_or_another_goes_first(monkeypatch):
    monkeypatch.setenv(find.SETTING, "/somewhere")
    done = run("install-relay")
    assert done.returncode == 2 and find.SETTING in done.stderr
    monkeypatch.delenv(find.SETTING)
    monkeypatch.setattr(find.platform, "machine", lambda: "aarch64")
    done = run("install-relay")
    assert done.returncode == 1 and "needs Linux on an x86-64 processor" in done.stderr


def test_installing_relay_loads_it_once(monkeypatch):
    commands = []

    def install(command: list[str], **_: object) -> subprocess.CompletedProcess:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.delenv(find.SETTING, raising=False)
    monkeypatch.setattr(installation.subprocess, "run", install)
    done = run("install-relay", "--force", connect=lambda ir: EngineClient(ir, session_of(ir)))
    assert done.returncode == 0, done.stderr
    assert "bitblas==0.1.0 carries TVM" in done.stdout
    (command,) = commands
    assert command[-3:] == ["--no-deps", "--force-reinstall", find.WHEEL]
