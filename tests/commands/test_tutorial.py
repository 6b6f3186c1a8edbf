"""The tutorial and the lectures: each of their commands runs, on the real engines, as it says."""

import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

from place import ROOT
from relascope.commands.main import main
from relascope.engine.client import EngineClient
from relascope.passes.catalogue import CATALOGUE
from relascope.passes.catalogue.user import VARIABLE

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TUTORIAL = ROOT / "docs" / "tutorial.md"
LECTURES = ROOT / "docs" / "lectures"
STATUS = {"report.py": 1, "diff": 1}
"""What a script or a command ends with, if not with 0: it shows a fault, or a difference."""


def pattern(line):
    """A line of a page as a pattern: runs of blanks are one, `…` is anything."""
    return ".*".join(re.escape(p) for p in re.sub(r" +", " ", line).split("…"))


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """What runs a line, in a folder with the files of all pages, and gives what it prints."""
    folder, engines, known = tmp_path_factory.mktemp("pages"), {}, dict(CATALOGUE)
    shutil.copytree(LECTURES, folder, dirs_exist_ok=True)
    (mine,) = (code for sort, code in blocks(TUTORIAL) if sort == "python")
    (folder / "mine.py").write_text(mine)
    passes = [p for p in folder.glob("*.py") if "(program" in p.read_text()]

    def connect(ir):
        if ir not in engines:
            engines[ir] = EngineClient(ir)
            monkeypatch.setattr(engines[ir], "close", lambda: None)
        return engines[ir]

    def run(line):
        program, *arguments = shlex.split(line)
        if program == "relascope":
            with redirect_stdout(StringIO()) as printed:
                assert main(arguments, connect) == STATUS.get(arguments[0], 0), line
            return printed.getvalue()
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
        status = STATUS.get(arguments[0].rpartition("/")[2], 0)
        assert (program, done.returncode) == ("python", status), done.stderr
        return done.stdout

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.setenv(VARIABLE, ":".join(map(str, passes)))  # read when an engine starts
        yield run
    for engine in engines.values():
        engine.close()
    CATALOGUE.clear()
    CATALOGUE.update(known)


LONG = re.compile("check|bisect|reduce|report|--measure")
"""What builds several programs, or starts a TVM, which other tests do: tests/both/bisecting.py,
tests/both/reducing.py."""


def holds(command, page, whole=True):
    """Run the commands of a page, and look for the lines that it says they print."""
    for sort, text in blocks(page):
        if sort == "sh":
            run = whole or not LONG.search(text)
        if sort == "sh" and run:
            printed = "".join(command(line) for line in text.splitlines())
            lines = [re.sub(r" +", " ", line).strip() for line in printed.splitlines()]
        elif sort == "text" and run:
            for line in text.splitlines():
                assert any(re.fullmatch(pattern(line.strip()), p) for p in lines), line


@pytest.mark.engine
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_every_command_of_the_tutorial_prints_what_it_says(command, whole):
    assert [sort for sort, _ in blocks(TUTORIAL)].count("sh") >= 9
    holds(command, TUTORIAL, whole)


def _lectures():
    """Each, but for those whose commands start torch and TVM several times, or build."""
    for page in sorted(LECTURES.glob("[a-z]*.md")):
        marks = pytest.mark.exhaustive if page.stem in ("execution", "frameworks") else ()
        yield pytest.param(page, id=page.stem, marks=marks)


@pytest.mark.engine
@pytest.mark.parametrize("page", [*_lectures()])
def test_every_command_of_a_lecture_prints_what_it_says(command, page):
    assert {"sh", "text"} <= {sort for sort, _ in blocks(page)}
    holds(command, page)
