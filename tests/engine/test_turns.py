"""Turns of engines on this machine: locks on a file, which another process holds here."""

import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from relascope.engine import turns
from relascope.engine.turns import Turns, alone, beside, shared_file

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, int(sys.argv[2]), 1, 1)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """This process takes turns; what it says while it waits, in order."""
    file = os.open(tmp_path / "turns", os.O_RDWR | os.O_CREAT)
    found = []
    monkeypatch.setattr(turns, "TURNS", Turns(file, found.append))
    yield found
    os.close(file)


@contextmanager
def another(path, kind, said):
    command = [sys.executable, "-c", HOLD, path, str(kind)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "held\n"

        def tell(text):
            said.append(text)
            if text and not process.stdin.closed:
                process.stdin.close()

        turns.TURNS.tell = tell
        yield process
        if not process.stdin.closed:
            process.stdin.close()


def free(path):
    program = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, 6, 1, 1)"
    command = [sys.executable, "-c", program, path]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_work_waits_for_who_runs_alone_and_says_so(told, tmp_path):
    with another(tmp_path / "turns", fcntl.LOCK_EX, told), beside():
        assert told == ["waiting: another engine is timing, alone on this machine", ""]
        assert not free(tmp_path / "turns")
    assert free(tmp_path / "turns")


def test_who_times_waits_until_the_others_are_done(told, tmp_path):
    with beside(), another(tmp_path / "turns", fcntl.LOCK_SH, told), alone():
        assert told == ["waiting until other engines are done: timing runs alone", ""]
        with alone():  # inside of itself it waits for nobody
            assert turns.TURNS.alone
    assert not turns.TURNS.alone
    assert free(tmp_path / "turns")


def test_a_script_takes_no_turns():
    assert turns.TURNS.file == -1
    with beside(), alone():
        assert not turns.TURNS.alone


def test_engines_of_one_user_share_a_file(tmp_path, monkeypatch):
    monkeypatch.delenv("RELASCOPE_ALONE")
    monkeypatch.setattr(turns.tempfile, "gettempdir", lambda: str(tmp_path))
    name = f"relascope-{os.getuid()}.turns"
    try:
        shared_file.cache_clear()
        file = shared_file()
        assert os.path.samestat(os.fstat(file), os.stat(tmp_path / name))
        (tmp_path / name).unlink()
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")  # somebody else's trap
        shared_file.cache_clear()
        other = shared_file()
        assert not (tmp_path / "elsewhere").exists()
        assert "turns" in os.readlink(f"/proc/self/fd/{other}")
    finally:
        shared_file.cache_clear()
        os.close(file)
        os.close(other)
