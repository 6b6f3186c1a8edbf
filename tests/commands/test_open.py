"""`open`: a recording in the terminal, and what starts the page on it. No TVM is needed."""

import base64
import csv
import io
import json
import os
import sys
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from command_line import document, page_of, run
from crafted.recorded import HOSTILE, recorded
from page_session import forward_graph
from place import ROOT
from relascope.commands.compiles import recordings
from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.files.formats import is_recording
from relascope.engine.files.program_file import taken_apart
from relascope.engine.jobs import bisect
from relascope.engine.jobs.bisect import Bisection, Question, Try
from relascope.engine.protocol.results import StepRecord
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue.recorded import recorded as recorded_step
from relascope.passes.pipeline import Pipeline
from relascope.passes.search.bisect import Culprits
from relascope.recorder import reading
from relascope.recorder.reading import read
from relascope.recorder.writing import Writer, hashed
from relascope.viz.compare.text import DiffEffort, brief, stretches_of
from relascope.viz.handed_on import recorded as handed_recorded
from relascope.viz.handed_on.recorded import recording_sheet
from relascope.viz.rows.recorded_numbers import RecordedNumbers, parts, why_none
from relascope.viz.rows.recording import end_words, pass_rows


@pytest.fixture
def path(tmp_path):
    return str(recorded(tmp_path / "run.rsc"))


STOPPED = "The compile failed in pass 6, Breaks: ValueError: no axis 7 here"


def test_it_prints_the_passes_nested_with_their_times_and_filters(path):
    said = run("open", path, "--print").stdout
    assert "    2    FoldTranspose" in said and "Where the time is" in said
    assert STOPPED in said
    found = document("open", path, "--json")
    assert [r["pass"] for r in found["passes"]][1:3] == ["FoldTranspose", "InferType"]
    assert found["totals"][0]["pass"] == "FoldTranspose" and found["totals"][0]["runs"] == 1
    assert found["passes"][5]["failure"].endswith("no axis 7 here")

    def numbers(only):
        return [r["number"] for r in document("open", path, "--only", only, "--json")["passes"]]

    found = [numbers(only) for only in ("changed", "slow", "failed")]
    assert found == [[1, 2, 4, 5], [1, 2, 3], [6]]


def test_other_commands_ask_it_as_they_ask_an_engine(path, tmp_path):
    assert {"nn.dense", "transpose"} <= set(document("graph", path)["operators"])
    found = {s["pass"]: s for s in document("step", path, "--text", "--changes")["steps"]}
    fold, around = found["FoldTranspose"], found["sequential"]  # which ran the fold
    assert [row["what"] for row in fold["changes"]] == ["removed", "changed"]
    assert all("-  %0' = transpose(w);" in step["diff"] for step in (fold, around))
    assert (around["added"], around["changed"], found["Breaks"]["diff"]) == (1, 1, "")
    for name in ("time", "check", "captures", "compare"):
        assert "has no model to build or run" in run(name, path).stderr
    assert "those that ran" in run("graph", path, "--passes", "cse").stderr
    assert "--level graphs" in run("graph", path, "--module", "nowhere").stderr
    lasts = [document("step", path, "--stop-after", n)["steps"][-1] for n in ("2", "FoldTranspose")]
    assert lasts[0]["pass"] == "FoldTranspose" and lasts[0] == lasts[1]
    page, said = tmp_path / "run.html", {}
    for asked in (("graph", path), ("step", path), ("open", path)):
        assert run(*asked, "-o", str(page)).returncode == 0
        said[asked[0]] = page.read_text()
    assert "compile recorded with TVM 0.99" in said["graph"] and said["step"] == said["open"]
    assert "all of its passes" in run("step", path, "--stop-after", "2", "-o", str(page)).stderr
    assert "has no model" in run("step", path, "--export", str(tmp_path / "x.py")).stderr


def test_it_says_where_a_compile_stopped(path):
    rows = pass_rows(read(Path(path)))
    assert (end_words(rows), end_words(rows[:5])) == (STOPPED, "")
    killed = [*rows[:1], {**rows[1], "seconds": None, "ended": False}]
    assert end_words(killed) == ""  # what ran around it ended: its error was handled
    killed[0] = {**killed[0], "ended": False}
    said = "The process ended in pass 2, FoldTranspose, and the recording stops there."
    assert end_words(killed) == said


def test_without_modules_there_are_no_numbers_and_with_them_as_far_as_they_can_be_run(path):
    for asked in (("open", path, "--errors"), ("bisect", path)):
        said = run(*asked).stderr
        assert "no modules to run: it was recorded at the level text" in said
        assert "--level modules" in said
    for option, value in (("--module", "f"), ("--dtype", "float64"), ("--kind", "slow")):
        said = run("bisect", path, option, value).stderr
        assert f"({option})" in said and said.startswith("error: Recorded ")
    found = read(Path(path))
    found.about["level"] = "modules"
    (part,) = parts(found)
    assert (part.by, part.after, part.runs) == (found.passes[0], False, (found.passes[1],))
    assert part.end.startswith(f"From pass 4, {HOSTILE}, on: It contains kernels")


def _recording(path, *lines):
    first = {"relascope_recording": 1, "level": "text"}
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (first, *lines)))
    return path


def _text(name, text):
    return {"text": name, "zlib": base64.b64encode(zlib.compress(text.encode())).decode()}


def _change(number, old, new):
    begun = {"begin": number, "depth": 0, "name": "P", "opt_level": 0, "module": old}
    return begun, {"end": number, "seconds": 0.1, "module": new}


def test_there_are_only_so_many_passes_and_functions_that_they_change(tmp_path, monkeypatch):
    functions = [[None, {f"f{i}": name for i in range(20)}, []] for name in "ab"]
    lines = [_text("a", "x"), _text("b", "y"), *_change(0, *functions)]
    for number in range(1, 9):
        lines += _change(number, number % 2, 1 - number % 2)
    path = _recording(tmp_path / "run.rsc", *lines)
    assert len(read(path).passes) == 9
    for limit, most, why in (
        ("_MOST", 200, "more than 200 functions"),
        ("_MOST_PASSES", 8, "more than 8 passes"),
        ("_LONGEST_LINE", 100, "damaged in line 4"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(reading, limit, most)
            with pytest.raises(EngineError, match=why):
                read(path)


def test_texts_are_compared_within_limits(tmp_path, monkeypatch):
    was = [str(i % 7) for i in range(60)]
    before, after = "\n".join(was), "\n".join(reversed(was))
    lines, least = stretches_of(before, after), stretches_of(before, after, DiffEffort(0))
    assert any(stretch.same for stretch in lines)
    assert [stretch.same for stretch in least] == [False]
    assert sum(row[0] is not None for row in least[0].rows) == 60
    assert brief("x " + "/* a" * 1000 + "\ny") == "x\ny"
    changes = _change(0, [None, {"main": "a"}, []], [None, {"main": "b"}, []])
    path = _recording(tmp_path / "run.rsc", _text("a", before), _text("b", after), *changes)
    assert not any("is full" in str(block) for block in recording_sheet(read(path)).blocks)
    monkeypatch.setattr(handed_recorded, "_STEPS", 0)
    monkeypatch.setattr(handed_recorded, "_STEPS_PER_BYTE", 0)
    assert any("is full" in str(block) for block in recording_sheet(read(path)).blocks)


def written(path, passes):
    """A recording of passes, each a name and the graph it leaves, or what it raises."""
    writer = Writer(path, {"tvm": "0.99", "level": "modules"})

    def content(graph):
        text = json.dumps(graph.to_json())
        writer.content("text", name := hashed(text), lambda: {"constants": [], "zlib": text})
        writer.content("graph", name, lambda: {"zlib": text})
        return name

    last = [None, {"main": content(forward_graph())}, []]
    for number, (name, left) in enumerate(passes):
        about = {"begin": number, "depth": 0, "name": name, "opt_level": 0}
        writer.line({**about, "module": number or last})
        if isinstance(left, str):
            writer.line({"failed": number, "seconds": 0.1, "message": left})
            break
        made = [number, {"main": content(left)}, []]
        writer.line({"end": number, "seconds": 0.1, "module": made})
    writer.close()
    return read(path)


def test_a_pass_that_raised_or_returns_something_else_is_named(tmp_path):
    graph = forward_graph()
    by_id = {n.id: n for n in graph}
    other = replace(by_id[graph.outputs[0]], outputs=(TensorType((8, 32), "float16"),))
    half = replace(graph, nodes=tuple(other if n.id == other.id else n for n in graph))
    raised = written(tmp_path / "raised.rsc", [("Raises", "Traceback\nValueError: no good")])
    assert why_none(raised) == "Pass 1, Raises: It raised ValueError: no good."
    changed = written(tmp_path / "half.rsc", [("Half", half)])
    assert why_none(changed).startswith("From pass 1, Half, on: It now returns float16[8, 32], not")
    assert parts(raised) == parts(changed) == ()
    passes = [("Fold", forward_graph(False)), ("Raises", "no good")]
    (part,) = parts(written(tmp_path / "both.rsc", passes))
    assert (part.runs, part.end) == ((part.by,), "Pass 2, Raises: It raised no good.")


def _found(part, kind):
    question = Question(ModelSource("m"), Pipeline((recorded_step(1, 1, "Fold"),)), "llvm")
    tried = Try(question.pipeline, 0, kind or "good", "output 0", 0.5, 0.5, 1e-5)
    found = Culprits((0,), question.pipeline, question.pipeline.upto(-1)) if kind else Culprits(())
    return Bisection(question, kind, found, (tried,))


def test_each_part_of_a_compile_is_searched_and_told_of(tmp_path, monkeypatch):
    passes = [("Fold", forward_graph(False)), ("Raises", "no good")]
    recording = written(tmp_path / "both.rsc", passes)
    (part,) = parts(recording)
    numbers, kinds = RecordedNumbers(recording, tmp_path), []
    monkeypatch.setattr(RecordedNumbers, "source", lambda *_: ModelSource("m"))
    monkeypatch.setattr(RecordedNumbers, "pipeline", lambda *_: Pipeline(()))
    monkeypatch.setattr(bisect, "bisect", lambda *_: _found(part, kinds.pop(0)))
    failed = StepRecord("recorded", True, 0, 0, 0, 1, 0.0, {}, EngineError("file", "no file\n."))
    right = replace(failed, error=None)
    tvm, asked, steps = "relax", partial(Question, target="llvm"), []

    def ask(method, *_):
        assert method == "step"
        return (steps.pop(0),)

    kinds[:], steps[:] = ["", "wrong"], [right, failed, right, right]
    _, said = numbers.search(ask, tvm, (part,) * 4, asked)
    first, second, third = said.splitlines()
    of = "From the module that pass 1, Fold, received: "
    assert first.startswith(f"{of}Nothing to find: the last of 1 recorded modules agrees with")
    assert first.endswith(part.end)
    assert second == f"{of}It could not be searched: no file {part.end}"
    assert third.startswith(f"{of}Pass 1, Fold, makes it wrong: ")
    steps[:] = [failed]
    with pytest.raises(EngineError, match="no file"):
        numbers.search(ask, tvm, (part,), asked)


def test_a_module_whose_constants_grow_without_end_is_refused(tmp_path, monkeypatch):
    path, name = tmp_path / "run.rsc", hashed("large")
    writer = Writer(path, {"tvm": "0.99", "level": "modules"})
    writer.content("blob", name, lambda: {"zlib": "x" * 100})
    for module, held in enumerate((name, name, ["no name"])):
        text = json.dumps({"arrays": [{"$blob": held}] * (1 + 10 * (module == 1))})
        writer.content("json", str(module), partial(dict, zlib=text))
        writer.line({"begin": module, "depth": 0, "name": "p", "opt_level": 0})
        writer.line({"end": module, "seconds": 0.1, "module": [None, {}, []]})
    writer.close()
    found = read(path)
    monkeypatch.setattr(reading, "_LONGEST_MODULE", 1000)
    assert json.loads(found.module(0, after=True)) == {"arrays": ["x" * 100]}
    for number, why in ((1, "larger than 2 GiB"), (2, "is damaged")):
        with pytest.raises(EngineError, match=why):
            found.module(number, after=True)


def test_a_step_is_a_diff_that_follows_the_numbers_or_says_why_there_is_none(path):
    said = run("open", path, "--step", "2").stdout
    assert "+++ main after" in said
    wanted = ["-  %0' = transpose(w);", "-  %0 = dense(x, %0');", "+  %0 = dense(x, w);"]
    assert [x for x in said.splitlines() if x[0] in "+-"][2:] == wanted
    for none in ("0", "7"):
        assert f"There is no pass {none}" in run("open", path, "--step", none).stderr
    said = run("open", path, "--step", "6")
    why = "The changes of pass 6, Breaks, are unknown. It raised ValueError: no axis"
    assert said.returncode == 1 and why in said.stderr
    assert "It changed nothing." in run("open", path, "--step", "3").stdout


def test_it_is_written_as_a_page_a_table_and_a_document(path, tmp_path):
    page, table, plain = (tmp_path / f"run{e}" for e in (".html", ".csv", ".json"))
    assert run("open", path, "-o", str(page)).stdout == f"{page}: 6 passes.\n"
    assert "Content-Security-Policy" in page.read_text()
    assert run("open", path, "-o", str(table), "--only", "slow").returncode == 0
    lines = list(csv.DictReader(io.StringIO(table.read_text())))
    touched = [(x["pass"], x["touched"]) for x in lines]
    assert touched[1:] == [("FoldTranspose", "main"), ("InferType", "")]
    assert run("open", path, "-o", str(plain)).returncode == 0
    assert json.loads(plain.read_text())["totals"][0]["pass"] == "FoldTranspose"
    refused = run("open", path, "-o", str(tmp_path / "run.svg"))
    kinds = "Give one of: .html, .page.json, .csv, .json, .rsc."
    assert refused.returncode == 2 and kinds in refused.stderr
    with Path(path).open("a") as out:
        out.write('{"begin": 9')
    refused = run("open", path, "-o", str(tmp_path / "cut.rsc"))
    assert refused.returncode == 2 and "is cut short" in refused.stderr
    assert not (tmp_path / "cut.rsc").exists()


def test_a_module_is_written_where_the_recording_has_it(path, tmp_path):
    file = tmp_path / "module.json"
    refused = run("open", path, "--step", "2", "--module", str(file))
    assert "no module after pass 2" in refused.stderr and not file.exists()
    assert "needs the number of a pass" in run("open", path, "--module", str(file)).stderr
    packed = base64.b64encode(zlib.compress(b'{"root_index": 1}')).decode()
    with Path(path).open("a") as out:
        out.write(json.dumps({"json": "1", "zlib": packed}) + "\n")
    assert run("open", path, "--step", "2", "--module", str(file)).returncode == 0
    assert json.loads(file.read_text()) == {"root_index": 1}


def test_the_page_is_started_on_it(path):
    command, environment = page_of("open", os.path.relpath(path), "--port", "8123", "--no-browser")
    assert environment["RELASCOPE_OPEN"] == path
    assert "8123" in command and command[1:4] == ["-m", "streamlit", "run"]
    assert page_of()[0][1:4] == command[1:4], "without a command, too"


def test_what_cannot_be_opened_is_a_sentence(tmp_path, path):
    assert "There is no file" in run("open", str(tmp_path / "none.rsc")).stderr
    (tmp_path / "other.rsc").write_text("{}")
    refused = run("open", str(tmp_path / "other.rsc"), "--print")
    assert refused.returncode == 1 and "is not a recording" in refused.stderr
    with pytest.raises(EngineError, match="is a recording of a compile, not a model"):
        taken_apart(Path(path))


@pytest.mark.parametrize(("name", "wanted"), [("broken.rsc", True), ("broken.pt", False)])
def test_a_damaged_recording_is_one_by_its_name(name, wanted, tmp_path):
    (tmp_path / name).write_bytes(bytes(range(256)))
    assert is_recording(tmp_path / name) is wanted


@pytest.mark.parametrize(("largest", "has_page"), [(1 << 20, True), (1 << 10, False)])
def test_a_large_recording_is_not_given_its_page_at_once(largest, has_page, tmp_path, monkeypatch):
    path, own = tmp_path / "run.rsc", ROOT / "docs/gallery/tutorials/bring_your_own_codegen.rsc"
    monkeypatch.setattr(recordings, "LARGEST", largest)
    copy = f"import shutil; shutil.copy({str(own)!r}, {str(path)!r})"
    done = run("record", "-o", str(path), "--", sys.executable, "-c", copy)
    assert "5 passes are in" in done.stdout
    assert read(path).has_page == has_page
