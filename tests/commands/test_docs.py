"""The documentation names what there is, all that it links to exists, and its commands run."""

import argparse
import re
import runpy
import shlex
import shutil
import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

import relascope.commands.main as cli
from answers import ran
from place import ROOT
from relascope.engine.client import EngineClient
from relascope.passes.catalogue import CATALOGUE, default_pipeline, gradients, names
from relascope.passes.catalogue.user import VARIABLE
from relascope.passes.cuts.cut import STRATEGIES
from relascope.passes.lint import LINTERS
from relascope.passes.lint.remedies import REMEDIES

PAGES = [ROOT / "README.md", *sorted([*ROOT.glob("[!R]*.md"), *(ROOT / "docs").glob("*.md")])]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PASS_PAGES = {"relay": "docs/passes.md", "relax": "docs/passes-relax.md"}
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def headings(text):
    return re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)


def anchor(heading):
    """As GitHub makes it: lower case, no punctuation, hyphens for blanks."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def commands():
    (group,) = (a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {
        name: {s for a in sub._actions if a.help != argparse.SUPPRESS for s in a.option_strings}
        for name, sub in group.choices.items()
    }


@pytest.mark.parametrize("ir", PASS_PAGES)
def test_every_pass_has_one_section_with_an_example_and_its_needs(ir):
    _, *parts = re.split(r"^### (.+)$", text_of(PASS_PAGES[ir]), flags=re.MULTILINE)
    assert sorted(parts[::2]) == sorted(names(ir))
    for name, section in zip(parts[::2], parts[1::2], strict=True):
        section = section.partition("\n##")[0]
        assert "\n→\n" in section, name
        assert all(p in section for p in ("- Needs: ", "- From: ", "- Traps: ")), name


@pytest.mark.parametrize(("ir", "training"), [(ir, t) for ir in PASS_PAGES for t in (False, True)])
def test_the_default_pipelines_are_those_of_the_catalogue(ir, training):
    for gradient in gradients(ir) if training else ("tvm",):
        assert f"\n{default_pipeline(ir, training, gradient)}\n" in text_of(PASS_PAGES[ir])


def test_the_table_beside_relays_passes_has_every_pass_of_both():
    table = text_of(PASS_PAGES["relax"]).partition("| Relay pass |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    assert rows
    for column, ir in enumerate(PASS_PAGES):
        found = [re.findall(r"`(\w+)`", row[column]) for row in rows]
        bare = {row[column].strip() for row, passes in zip(rows, found, strict=True) if not passes}
        assert bare <= {"none"}
        assert {name for passes in found for name in passes} == set(names(ir))


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_has_a_section_with_an_example(name):
    text = text_of("docs/command-line.md")
    assert name in headings(text)
    assert re.search(rf"^relascope {name}\b", text, re.MULTILINE)


def test_the_table_of_options_is_the_parsers_and_every_strategy_is_described():
    text = text_of("docs/command-line.md")
    table = runpy.run_path(str(ROOT / "docs" / "gallery" / "examples.py"))["options"]()
    assert f"\n\n{table}\n\n" in text, "run `make docs`"
    options = set().union(*commands().values()) - {"-h", "--help"}
    assert not {o for o in options if not re.search(rf"`{o}\b", table)}
    for page in (text, text_of("docs/in-your-code.md")):
        assert not {s for s in STRATEGIES if f"`{s}`" not in page}


@pytest.mark.engine
def test_the_docs_are_written_from_the_parser_and_from_what_passes_do(tmp_path):
    examples = runpy.run_path(str(ROOT / "docs" / "gallery" / "examples.py"))
    own = examples["main"].__globals__
    pages = {"command-line.md": own["OPTIONS"], "passes.md": own["PAGES"]["relay"]}
    for name, page in pages.items():
        text = page.read_text(encoding="utf-8")
        broken = re.sub(r"(^### cse$.*?^```\n).*?(^```$)", r"\1gone\n\2", text, flags=re.M | re.S)
        broken = re.sub(r"(?<=^## Options\n\n)\|", "| gone |", broken, flags=re.M)
        assert broken != text
        (tmp_path / name).write_text(broken, encoding="utf-8")
    own |= {"OPTIONS": tmp_path / "command-line.md", "PAGES": {"relay": tmp_path / "passes.md"}}
    own["names"] = lambda ir: ["cse"]
    examples["main"]()
    for name, page in pages.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="no section 'nonsense'"):
        examples["renewed"]("### cse\n", "nonsense", "")


def test_the_examples_of_the_command_line_are_accepted():
    lines = re.findall(r"^relascope (?!COMMAND)(.+)$", text_of("docs/command-line.md"), re.M)
    assert len(lines) >= len(commands())
    parser = cli.parser()
    for line in lines:
        arguments = [re.sub(r"^'|'$", "", a) for a in re.findall(r"'[^']*'|\S+", line)]
        parser.parse_args(arguments)  # leaves with status 2 where it does not understand


def test_every_linter_has_a_section_that_names_the_passes_that_remove_what_it_finds():
    text = text_of("docs/linters.md")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(LINTERS)
    for remedies in REMEDIES.values():
        for remedy in remedies.values():
            assert all(f"`{name}`" in text or remedy in text for name in remedy.split("|"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_relative_link_and_image_exists(page):
    text = page.read_text(encoding="utf-8")
    targets = [t for t in LINK.findall(FENCE.sub("", text)) if "://" not in t]
    missing = []
    for target in targets:
        file, _, fragment = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.is_file():
            missing.append(target)
        elif fragment:
            known = {anchor(h) for h in headings(path.read_text(encoding="utf-8"))}
            missing += [] if fragment in known else [target]
    assert not missing


def test_the_readme_leads_to_every_page():
    linked = set(LINK.findall(text_of("README.md")))
    assert {p.relative_to(ROOT).as_posix() for p in PAGES[1:]} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_are_named_exist_and_no_path_is_absolute(page):
    text = page.read_text(encoding="utf-8")
    folders = "bench|commands|core|engine|passes|viz|samples|tests"
    named = re.findall(rf"`((?:{folders})/[\w/]*[\w.]+)`", text)
    assert not [n for n in named if not (ROOT / n).exists()]
    roots = "home|root|work|tmp|usr|mnt|opt|Users"
    assert not re.findall(rf"(?<![\w.:/])(?:/(?:{roots})/|~/|[A-Z]:\\)", text)


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
                assert cli.main(arguments, connect) == STATUS.get(arguments[0], 0), line
            return printed.getvalue()
        done = ran(sys.executable, *arguments)
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


def _lecture(page):
    """Exhaustive where commands start torch and TVM several times, or build."""
    marks = pytest.mark.exhaustive if page.stem in ("execution", "frameworks") else ()
    return pytest.param(page, id=page.stem, marks=marks)


@pytest.mark.engine
@pytest.mark.parametrize("page", [*map(_lecture, sorted(LECTURES.glob("[a-z]*.md")))])
def test_every_command_of_a_lecture_prints_what_it_says(command, page):
    assert {"sh", "text"} <= {sort for sort, _ in blocks(page)}
    holds(command, page)
