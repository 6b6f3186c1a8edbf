"""Tuning kernels of Relax: tasks, records, reuse, and what is left of a run that was killed."""

import functools
import os
import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import tvm
from torch import nn
from tvm.s_tir import meta_schedule as ms

from answers import refused
from gradients import Fn, imported
from limits import LIMITS, OUTPUT
from quick import combinations, rare
from relascope.engine.building.options import BuildOptions, TuningRecords
from relascope.engine.measure.compare import Built, errors_of
from relascope.engine.protocol import records
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.tuning import RECORDS
from relascope.engine.relax.building import apply_records, kernel_tasks, runtime
from relascope.engine.relax.building.targets import BLAS, SCHEDULES, parse, targets
from relascope.engine.relax.session import RelaxSession
from relascope.engine.relax.tune import trial, tuning
from relascope.passes.catalogue import default_pipeline, last_built
from relax_modules import draw, errors, main_of, quiet

SCHEDULED = f"llvm {SCHEDULES}"
LIBRARY = f"llvm {BLAS} {SCHEDULES}"
SOURCE = ModelSource("mlp", batch=2)
PIPELINE = default_pipeline("relax", False)


@pytest.fixture(scope="module", autouse=True)
def quick():
    """The search breeds from few, in processes that each tuner would start anew; one runs kernels
    of all targets."""
    runner, made = ms.runner.LocalRunner, []

    def only(**how):
        made.extend([] if made else [runner(**how)])
        return made[0]

    with (
        patch.object(ms.runner, "LocalRunner", only),
        patch.object(tuning, "measures", functools.cache(tuning.measures)),
        patch.object(tuning.ScheduleSearch, "__exit__", lambda *_: None),
        patch.multiple(tuning, MOST_BUILDERS=1, POPULATION=8, SAMPLED=4, GENERATIONS=1),
    ):
        yield


@pytest.fixture
def place(monkeypatch, tmp_path):
    monkeypatch.setenv(records.VARIABLE, str(tmp_path))
    return tmp_path


def tuned(program, target, place, trials=2, most=None):
    """Tune the tasks of a program, or the first of them; gives all."""
    found = tuning.tunable(main_of(program), target, None)
    with tuning.tuner(target, 1) as tuner:
        for task in found.workloads[:most]:
            made = []
            tuner.search(task, place / task.key, trials, made.extend)
            assert any(m.ms is not None for m in made), made
    return found.workloads


def found_for(target):
    return BuildOptions(target).with_records("relax", tvm.__version__).records


def compared(model, program, target, place):
    options = BuildOptions(target, records=TuningRecords(place, "", always=True))
    built = Built(model, program, runtime.assemble(program, None, options), None, 0.0)
    return {c.name: c.max_rel for c in errors_of(built, quiet)}


@pytest.mark.parametrize("target", [SCHEDULED, "llvm", LIBRARY])
def test_tasks_are_the_kernels_with_their_nodes_and_shares(place, target):
    session = RelaxSession()
    found = session.tasks(BuildRequest(SOURCE, PIPELINE, target, 1), progress=quiet)
    assert len({t.key for t in found}) == len(found) >= 3
    assert [t.share for t in found] == sorted((t.share for t in found), reverse=True)
    assert 0.5 < sum(t.share for t in found) <= 1.0001
    built = last_built("relax", PIPELINE)
    graph = session.graph_after(SOURCE, PIPELINE, built, progress=quiet)
    calls = {n.id for n in graph if n.op}
    computed = [i for t in found for i in t.nodes]
    assert set(computed) <= set(graph.by_id)
    assert len(set(computed) & calls) >= 0.7 * len(calls)
    for task in found:
        assert task.arguments[-1].dtype == "float32"
        assert task.before_ms > 0 and task.best_ms is None and not task.uses_record
    assert any(t.flops and t.flops >= 2 * 2 * 64 * 256 for t in found)
    same = session.tasks(BuildRequest(SOURCE, PIPELINE, f"{target} {RECORDS}", 1), progress=quiet)
    assert {t.key for t in same} == {t.key for t in found}


def test_a_reshape_that_the_build_makes_a_view_is_no_task(place):
    source = ModelSource("gpt2_block", batch=1, tokens=3)
    found = RelaxSession().tasks(BuildRequest(source, PIPELINE, LIBRARY, 1), progress=quiet)
    assert "reshape" not in {t.name for t in found}
    assert all(t.calls and t.before_ms > 0 for t in found)


def test_equal_kernels_are_one_task_in_every_program():
    twice = Fn(lambda x, y: (torch.softmax(x, 1), torch.softmax(y, 1)))
    _, two = imported(twice, draw(4, 8), draw(4, 8))
    _, one = imported(Fn(lambda x: torch.softmax(x, 1)), draw(4, 8))
    _, other = imported(Fn(lambda x: torch.softmax(x, 1)), draw(4, 16))
    found = [tuning.tunable(main_of(p), "llvm", None) for p in (two, one, other)]
    keys = [{w.key for w in f.workloads} for f in found]
    assert keys[0] == keys[1] and len(keys[0]) == 1
    assert keys[0] != keys[2]
    assert Counter(found[0].calls) == {next(iter(keys[0])): 2}


def a_layer():
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.LayerNorm(16))


@pytest.mark.parametrize("dtype", ["float32", rare("float64")])
def test_a_program_built_with_records_agrees_with_pytorch(tmp_path, dtype):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    model, program = imported(module, draw(8, 16), dtype=dtype)
    tasks = tuned(program, SCHEDULED, tmp_path)
    found = compared(model, program, SCHEDULED, tmp_path)
    assert max(found.values()) <= LIMITS[dtype][0], found
    mod = runtime.module_of(program, "main", program.mod["main"])
    mod = kernel_tasks.kernels(runtime.dispatched(mod, SCHEDULED), parse(SCHEDULED))
    mod = apply_records.by_records(TuningRecords(tmp_path, "", always=True), [])(mod)
    kernels = [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    assert len(kernels) == len(tasks)
    assert all(k.attrs.get("tirx.is_scheduled", False) for k in kernels)


SHAPES = [
    ((8, 16), (16, 4)),
    ((3, 8, 16), (16, 4)),
    ((2, 3, 8, 16), (3, 16, 4)),
    ((1, 8, 16), (5, 16, 4)),
]


@pytest.mark.parametrize(("shapes", "turned"), combinations(SHAPES, [True, False]))
def test_a_matmul_of_the_library_is_a_task_as_tvm_would_do_it(tmp_path, shapes, turned):
    left, right = shapes
    right = (*right[:-2], right[-1], right[-2]) if turned else right
    function = Fn(lambda a, b: torch.matmul(a, b.mT if turned else b))
    model, program = imported(function, draw(*left), draw(*right))
    (task,) = tuning.tunable(main_of(program), f"llvm {BLAS}", None).workloads
    assert task.program.symbol == f"relascope.matmul_n{'t' if turned else 'n'}"
    assert [a.shape for a in task.arguments[:2]] == [left, right]
    kernel = kernel_tasks.alone(task, False)
    machine = tvm.relax.VirtualMachine(runtime.make(kernel, BuildOptions("llvm")), tvm.cpu())
    expected = function(*model.inputs)
    given = [tvm.runtime.from_dlpack(i.contiguous()) for i in model.inputs]
    result = torch.from_dlpack(machine["main"](*given))
    assert (result - expected).abs().max() <= OUTPUT
    if turned and len(left) == 2:
        tuned(program, f"llvm {BLAS}", tmp_path)
        found = TuningRecords(tmp_path, "", always=True)
        mod = runtime.module_of(program, "main", program.mod["main"])
        mod = apply_records.instead_of_library(runtime.dispatched(mod, f"llvm {BLAS}"), found)
        symbols = [kernel_tasks.symbol_of(c) for c in kernel_tasks.calls_of(mod["main"])]
        assert symbols == ["tuned_matmul"]
        errors_now = compared(model, program, f"llvm {BLAS}", tmp_path)
        assert max(errors_now.values()) <= OUTPUT


def test_a_build_takes_a_record_only_where_it_beats_what_is_done_without(place):
    torch.manual_seed(0)
    model, program = imported(a_layer(), draw(8, 16))
    target = f"{SCHEDULED} {RECORDS}"
    folder = records.folder("relax", tvm.__version__, target, torch.get_num_threads())
    assert found_for(target) is None
    task, *_ = tuned(program, SCHEDULED, folder, most=1)
    book = records.Trial(task.key, "r", 1, 0.5, 0.5, 0.0, "c")
    records.add(folder, records.CURVE, [book])
    found = found_for(target)
    assert found.place == folder and apply_records.taking(found)(task.key)
    records.add(folder, records.UNTUNED, [records.Untuned(task.key, "r", 1, 0.25)])
    again = found_for(target)
    assert again != found  # what was built with the records as they were is built anew
    assert not apply_records.taking(again)(task.key)
    assert found_for(SCHEDULED) is None
    assert max(errors(model, program, target).values()) <= OUTPUT


def test_a_record_serves_an_equal_kernel_whose_steps_have_other_names(tmp_path):
    """Structure makes a task; the names that a record calls steps by are no part of it."""
    one = imported(Fn(lambda x: torch.relu(x) * 2), draw(8, 16))[1]
    (task,) = tuned(one, SCHEDULED, tmp_path)
    before = task.program.mod.script()
    text = re.sub(r'(sblock\(")(?!root")', r"\1other_", before)
    other = tvm.script.from_source(text)
    assert kernel_tasks.key_of(other) == task.key and text != before
    found = TuningRecords(tmp_path, "", always=True)
    made = apply_records.by_records(found, [])(tvm.IRModule({"kernel": other["main"]}))
    assert made["kernel"].attrs["tirx.is_scheduled"]


def test_a_record_of_another_kernel_is_refused(tmp_path):
    _, program = imported(a_layer(), draw(8, 16))
    first, second, *_ = tuned(program, SCHEDULED, tmp_path, most=2)
    (tmp_path / first.key).rename(tmp_path / "away")
    (tmp_path / second.key).rename(tmp_path / first.key)
    options = BuildOptions(SCHEDULED, records=TuningRecords(tmp_path, "", always=True))
    with refused(says="of another kernel") as caught:
        runtime.assemble(program, None, options)
    assert first.key in caught.value.where


def test_what_is_found_goes_on_and_is_tvms_database_too(place):
    session, request = RelaxSession(), BuildRequest(SOURCE, PIPELINE, SCHEDULED, 1)
    first, *_ = session.tasks(request, progress=quiet)
    said, keys = [], (first.key,)
    result = session.tune(request, keys, 3, progress=lambda f, t: said.append((f, t)))
    (row,) = result.tasks
    assert (row.trials, row.earlier_ms) == (3, None) and row.before_ms > 0
    assert said[-1][0] == pytest.approx(1.0) and "trial 3 of 3" in said[-1][1]
    again = session.tune(request, keys, 3, progress=quiet)
    assert again.tasks[0].earlier_ms == row.best_ms
    folder = Path(result.folder)
    book = records.read(folder)
    assert [t.trial for t in book.trials] == [1, 2, 3, 4, 5, 6]
    assert [len(book.in_run(r.run)) for r in (result, again)] == [3, 3]
    # The rival alone, then in turn with the best record, which the second run has from the start.
    assert [r.ours_ms is not None for r in book.untuned] == [False, True, True, True]
    own = folder / first.key
    theirs = ms.database.JSONDatabase(str(own / records.WORKLOAD), str(own / records.SCHEDULES))
    assert len(theirs) == sum(t.ms is not None for t in book.trials)
    (now, *_) = session.tasks(request, progress=quiet)
    assert now.trials == 6 or now.key != first.key
    tuned_request = BuildRequest(SOURCE, PIPELINE, f"{SCHEDULED} {RECORDS}")
    assert all(c.max_rel <= OUTPUT for c in session.check(tuned_request, progress=quiet))
    with refused("usage"):
        session.tune(request, ("none",), 3, progress=quiet)


def test_a_kernel_that_cannot_be_built_or_ends_its_process_is_an_answer(tmp_path):
    _, program = imported(Fn(torch.matmul), draw(8, 16), draw(16, 4))
    (task,) = tuning.tunable(main_of(program), "llvm", None).workloads
    _, runner = tuning.measures("llvm", 1)
    marks, good = tmp_path / "marks", partial(trial.build, False, True)
    missing = tmp_path / "built" / "no_such_kernel"  # TVM removes the folder that it stands in
    missing.parent.mkdir()

    def build(kernel):
        with marks.open("a") as file:
            file.write("x")
        if len(marks.read_text()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return str(missing) if len(marks.read_text()) == 2 else good(kernel)

    found = []
    with tuning.ScheduleSearch("llvm", 1, (tuning._Builder(build), runner)) as search:
        search.search(task, tmp_path, 3, found.extend)
    assert [m.ms is None for m in found] == [True, True, False]
    assert "terminated" in found[0].error and found[1].error


def test_the_best_target_here_has_records_and_without_them_builds_as_before(place):
    assert RECORDS in targets()[0].name
    model, program = imported(a_layer(), draw(8, 16))
    best = f"llvm {BLAS} {SCHEDULES} {RECORDS}"
    assert max(errors(model, program, best).values()) <= OUTPUT
