"""The tutorial: each of its commands runs, in one process and on the real engine, as it says."""

import re
import shlex
import subprocess
import sys

import pytest

from place import ROOT
from relascope.commands.main import main
from relascope.engine.client import EngineClient
from relascope.passes.catalogue import CATALOGUE
from relascope.passes.catalogue.user import VARIABLE

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pattern(line):
    """A line of the tutorial as a pattern: runs of blanks are one, `…` is anything."""
    return ".*".join(re.escape(p) for p in re.sub(r" +", " ", line).split("…"))


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.py"))  # read when the engine starts
    engines, known = [], dict(CATALOGUE)

    def connect(ir):
        if not engines:
            engines.append(EngineClient(ir))
            monkeypatch.setattr(engines[0], "close", lambda: None)
        return engines[0]

    def run(line):
        program, *arguments = shlex.split(line)
        if program == "relascope":
            assert main(arguments, connect) == 0, line
            return capsys.readouterr().out
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
        assert (program, done.returncode) == ("python", 1), done.stderr
        return done.stdout

    yield run
    monkeypatch.undo()
    for engine in engines:
        engine.close()
    CATALOGUE.clear()
    CATALOGUE.update(known)


@pytest.mark.engine
@pytest.mark.parametrize("timed", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_every_command_of_the_tutorial_prints_what_it_says(command, tmp_path, timed):
    blocks = BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    (mine,) = (code for sort, code in blocks if sort == "python")
    (tmp_path / "mine.py").write_text(mine)
    assert [sort for sort, _ in blocks].count("sh") >= 9
    for sort, text in blocks:
        if sort == "sh":
            run = timed or "--measure" not in text  # which builds and times each cut
        if sort == "sh" and run:
            printed = "".join(command(line) for line in text.splitlines())
            lines = [re.sub(r" +", " ", line).strip() for line in printed.splitlines()]
        elif sort == "text" and run:
            for line in text.splitlines():
                assert any(re.fullmatch(pattern(line.strip()), p) for p in lines), line
