"""What is started beside a device: TVM's tracker and server, by the TVM of an engine."""

import subprocess
import sys

import pytest

from relascope.engine import serve


def test_a_tracker_is_tvms_own():
    command = [sys.executable, "-m", "relascope.engine.serve", "relax", "tracker", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--port-end" in done.stdout


def test_what_it_takes_is_said(monkeypatch):
    for words in ([], ["relay"], ["relay", "nonsense"], ["nonsense", "tracker"]):
        monkeypatch.setattr(sys, "argv", ["serve", *words])
        with pytest.raises(SystemExit, match=r"relascope\.engine\.serve relax tracker"):
            serve.main()


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["serve", "relax", "server"])
    monkeypatch.setattr(serve.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="needs the package cloudpickle: pip install cloudpickle"):
        serve.main()
