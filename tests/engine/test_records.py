"""Measurements on disk: what is kept, where, and what a process that was killed leaves."""

import dataclasses
import functools
import json
import subprocess
import sys
import time

import pytest

from answers import refused
from place import ROOT
from relascope.core.errors import EngineError
from relascope.engine.protocol import records
from relascope.engine.protocol.records import Untuned
from relascope.engine.protocol.tuning import Trial


def trial(number, ms, task="t", run="r", best=None):
    return Trial(task, run, number, ms, best, float(number), f"{task} {number}")


def test_what_was_added_is_read_in_order_and_by_task(tmp_path):
    place = tmp_path / "deep" / "folder"
    records.add(place, records.CURVE, [trial(1, 0.5), trial(2, None)])
    records.add(place, records.CURVE, [trial(1, 0.1, "u", "s"), trial(3, 0.25)])
    untuned = [Untuned("t", "r", 0, 0.75), Untuned("t", "r", 3, 0.375, 0.25)]
    records.add(place, records.UNTUNED, untuned)
    book = records.read(place)
    assert [t.trial for t in book.of("t")] == [1, 2, 3]
    assert [t.task for t in book.in_run("s")] == ["u"]
    assert (book.best_ms("t"), book.best_ms("u"), book.best_ms("v")) == (0.25, 0.1, None)
    assert (book.before_ms("t"), book.before_ms("u")) == (0.375, None)
    assert book.notes == ()
    assert records.read(tmp_path / "nothing") == records.Book((), ())


@pytest.mark.parametrize("cut", [1, 17, 60])
def test_a_line_that_was_cut_short_is_said_and_costs_no_other(tmp_path, cut):
    records.add(tmp_path, records.CURVE, [trial(1, 0.5), trial(2, 0.25), trial(3, 0.125)])
    path = tmp_path / records.CURVE
    path.write_bytes(path.read_bytes()[:-cut])
    book = records.read(tmp_path)
    whole = 3 if cut == 1 else 2  # without its newline alone the line is whole
    assert [t.trial for t in book.trials] == [1, 2, 3][:whole]
    assert bool(book.notes) == (whole == 2)
    if book.notes:
        assert "line 3" in book.notes[0]
    records.add(tmp_path, records.CURVE, [trial(4, 0.1)])
    book = records.read(tmp_path)
    assert [t.trial for t in book.trials] == [1, 2, 4]
    assert book.notes == ()


def test_a_line_of_something_else_is_left_out_and_the_stamp_changes_with_the_others(tmp_path):
    records.add(tmp_path, records.CURVE, [trial(1, 0.5)])
    records.append(tmp_path / records.CURVE, '{"task": "t"}\nno JSON\n')
    records.add(tmp_path, records.CURVE, [trial(2, 0.25)])
    book = records.read(tmp_path)
    assert [t.trial for t in book.trials] == [1, 2]
    (note,) = book.notes
    assert note.startswith("curve.jsonl: 2 lines cannot be read and are left out (first")
    stamps = {records.stamp(tmp_path / "apart")}
    records.add(tmp_path / "apart", records.CURVE, [trial(1, 0.5)])
    stamps.add(records.stamp(tmp_path / "apart"))
    records.add(tmp_path / "apart", records.UNTUNED, [Untuned("t", "r", 1, 0.5)])
    stamps.add(records.stamp(tmp_path / "apart"))
    assert len(stamps) == 3
    assert records.stamp(tmp_path / "apart") in stamps


def test_a_record_is_taken_where_it_beats_what_is_done_without(tmp_path):
    def takes(trials, rivals):
        return records.Book(tuple(trials), tuple(rivals)).takes("t")

    assert not takes([], [])
    assert not takes([trial(1, None)], [])
    assert takes([trial(1, 0.5)], [])
    assert takes([trial(1, 0.5)], [Untuned("t", "r", 0, 0.6)])
    assert not takes([trial(1, 0.5)], [Untuned("t", "r", 0, 0.4)])
    # Measured in turn, its record was slower than when it was found.
    assert not takes([trial(1, 0.5)], [Untuned("t", "r", 1, 0.6, 0.7)])
    # A better one was found since, and has not been measured in turn: the process was killed.
    assert takes([trial(1, 0.5), trial(2, 0.3)], [Untuned("t", "r", 1, 0.6, 0.7)])
    assert takes([trial(1, 0.5)], [Untuned("u", "r", 1, 0.1)])


def test_the_folder_is_that_of_what_makes_kernels_differ(monkeypatch, tmp_path):
    monkeypatch.setenv(records.VARIABLE, str(tmp_path))

    def place(target, threads=2, version="1"):
        return records.folder("relax", version, target, threads)

    base = place("llvm -mcpu=znver2 -schedules=relascope")
    assert base.is_relative_to(tmp_path / "relax-1")
    assert base.name == "llvm-znver2-2_threads-fbdbd8a9"  # where earlier versions find it
    more = "llvm -mcpu=znver2 -libs=blas -schedules=relascope -records=relascope"
    for same in ("llvm -schedules=relascope -mcpu=znver2", more):
        assert place(same) == base
    others = [
        place("llvm -mcpu=znver2"),
        place("llvm -mcpu=znver1 -schedules=relascope"),
        place("llvm -mcpu=znver2 -schedules=relascope", 1),
        place("llvm -mcpu=znver2 -schedules=relascope", version="2"),
    ]
    assert len({base, *others}) == 5
    monkeypatch.delenv(records.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert records.root() == tmp_path / "cache" / "relascope" / "records"


def started(code, folder):
    command = [sys.executable, "-c", f"import sys, time\nfrom pathlib import Path\n{code}", folder]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_two_processes_do_not_tune_in_one_folder_and_a_killed_one_does_not_block(tmp_path):
    code = (
        "from relascope.engine.protocol import records\n"
        "with records.locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    with started(code, tmp_path) as process:
        try:
            assert process.stdout.readline() == "held\n"
            with refused(says="Another process"), records.locked(tmp_path):
                pass
        finally:
            process.kill()
    with records.locked(tmp_path):
        pass


def test_lines_are_on_disk_when_a_process_is_killed_in_the_middle(tmp_path):
    code = (
        "from relascope.engine.protocol import records\n"
        "for n in range(1, 10**6):\n"
        "    about = 1.0, 1.0, 0.0, 'c' * 200\n"
        "    lines = [records.Trial('t', 'r', 4 * n + k, *about) for k in range(4)]\n"
        "    records.add(Path(sys.argv[1]), records.CURVE, lines)\n    print(n, flush=True)"
    )
    with started(code, tmp_path) as process:
        for _ in range(20):
            process.stdout.readline()
        time.sleep(0.05)
        process.kill()
        printed = 20 + len([x for x in process.stdout.read().split("\n")[:-1] if x])
    assert len(records.read(tmp_path).trials) >= 4 * printed


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with refused("file", hint=records.VARIABLE):
        records.add(tmp_path / "file" / "below", records.CURVE, [trial(1, 0.5)])
    with pytest.raises(EngineError), records.locked(tmp_path / "file" / "below"):
        pass


TASK = "relax-0.27/llvm-1-threads/0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (records.CURVE, {"task": "t", "run": "r"}),
        (records.UNTUNED, {"task": "t", "run": "r", "trial": "1", "ms": 1.0}),
        (records.OPERATOR, {"constants": [], "library": "yes"}),
        (records.WORKLOAD, ["1", {"type": "ffi.Function"}]),
        (records.AUTOTVM, {"input": ["llvm", "t", [], {}], "v": 0.1}),
        (records.SCHEDULES, [0, [[[["UnsafeSetDType", ["b0"], [], []]], []], [1.0], {}, []]]),
        (
            records.SCHEDULES,
            [0, [[[["Annotate", ["b0", "code"], ["pragma_import_c"], []]], []], [1.0], {}, []]],
        ),
        (records.OPERATOR, {"constants": [functools.reduce(lambda a, _: [a], range(900), 0)]}),
        ("other.json", {}),
    ],
)
def test_a_line_that_no_engine_writes_is_neither_added_nor_read(tmp_path, monkeypatch, name, line):
    monkeypatch.setenv(records.VARIABLE, str(tmp_path))
    path = tmp_path / TASK / name
    with records.Adding() as adding, pytest.raises(EngineError, match="records cannot be added"):
        adding.do("append", str(path), json.dumps(line) + "\n")
    assert not path.exists()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(line) + "\n")
    if name in (records.CURVE, records.UNTUNED):
        path.rename(path.parent / records.CURVE)
        assert records.read(path.parent).notes
    else:
        with pytest.raises(EngineError, match="Line 1 is not a record"):
            list(records.checked(path))


@pytest.mark.parametrize(
    "path", ["../out/a/curve.jsonl", "a/b/../curve.jsonl", ".ssh/b/curve.jsonl", "curve.jsonl"]
)
def test_records_are_added_nowhere_else(tmp_path, monkeypatch, path):
    root = tmp_path / "records"
    monkeypatch.setenv(records.VARIABLE, str(root))
    line = json.dumps(dataclasses.asdict(trial(1, 0.5)))
    with records.Adding() as adding:
        with pytest.raises(EngineError, match="records cannot be added"):
            adding.do("append", f"{root}/{path}", line)
        adding.do("append", str(root / "relax-0.27" / "llvm" / records.CURVE), line + "\n")
    assert [p.name for p in tmp_path.rglob("*.jsonl")] == [records.CURVE]
