"""Tuning of Relay's kernels: tasks, a few trials, records that a build takes, and going on."""

import os
import signal
import time
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
import tvm
from tvm.contrib.popen_pool import PopenPoolExecutor

from answers import quiet
from limits import LIMITS
from quick import rare
from relascope.engine.building.options import BuildOptions
from relascope.engine.protocol import records
from relascope.engine.protocol.records import Untuned
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.protocol.tuning import RECORDS
from relascope.engine.relay.building import runtime, templates
from relascope.engine.relay.building.profiled import _Passes
from relascope.engine.relay.tune import trial, tuning
from relascope.engine.relay.tvm.boot import spawning
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import cut
from traces import save

PIPELINE = default_pipeline("relay", False)
MLP = ModelSource("mlp", batch=2)
PLAIN = "llvm"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """Records of these tests alone, which their processes inherit."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(records.VARIABLE, str(tmp_path_factory.mktemp("records")))
        yield


@pytest.fixture(scope="module", autouse=True)
def pool():
    """One process for all that is measured, which each tuner would start anew."""
    shared = PopenPoolExecutor(1, 4.0)  # some schedules compile forever
    with patch.object(tuning, "PopenPoolExecutor", lambda *_: shared):
        yield shared


def lowered(session, source, target):
    """Which loops a build makes; LLVM's code of equal loops differs from time to time."""
    program, seen = session.program_after(source, PIPELINE), _Passes()
    options = BuildOptions(target)
    runtime.make(runtime.prepared(program, program.main, options), options, [seen])
    functions = seen.modules["LowerTE"].functions.items()
    return {g.name_hint: str(f) for g, f in functions if isinstance(f, tvm.tir.PrimFunc)}


def test_tasks_are_linear_layers_with_their_share_of_the_time(session):
    request = BuildRequest(MLP, PIPELINE, PLAIN, 1)
    found = session.tasks(request, progress=quiet)
    assert {t.name for t in found} == {"nn.dense"}
    shapes = {tuple(a.shape for a in t.arguments) for t in found}
    assert shapes == {((2, 64), (256, 64), (2, 256)), ((2, 256), (10, 256), (2, 10))}
    assert {t.flops for t in found} == {2 * 2 * 256 * 64, 2 * 2 * 256 * 10}
    assert all(t.calls == 1 and t.before_ms > 0 and t.trials == 0 for t in found)
    assert 0 < sum(t.share for t in found) <= 1
    assert all(not t.uses_record for t in found)
    # A task has another key where a library does it.
    blas = session.tasks(replace(request, target=f"{PLAIN} -libs=mkl"), progress=quiet)
    assert len(blas) == len(found)
    assert not {t.key for t in found} & {t.key for t in blas}


@pytest.mark.parametrize("dtype", ["float32", rare("float64")])
def test_what_was_found_is_built_and_right(session, dtype):
    source = ModelSource("mlp", batch=2, dtype=dtype)
    tasks = session.tasks(BuildRequest(source, PIPELINE, PLAIN, 1), progress=quiet)
    key = next(t.key for t in tasks if t.arguments[0].shape == (2, 64))
    made = session.tune(BuildRequest(source, PIPELINE, PLAIN, 1), (key,), 4, progress=quiet)
    (task,) = made.tasks
    assert (task.key, task.trials) == (key, 4) and None not in (task.best_ms, task.before_ms)
    place = records.folder("relay", session.describe(progress=quiet).version, PLAIN, 1)
    tuned = f"{PLAIN} {RECORDS}"
    without = lowered(session, source, PLAIN)
    records.add(place, records.UNTUNED, [Untuned(key, made.run, 4, 1e-9)])
    assert lowered(session, source, tuned) == without  # nothing beats that, so it stays
    records.add(place, records.UNTUNED, [Untuned(key, made.run, 4, 1e9)])
    assert lowered(session, source, tuned) != without
    found = session.check(BuildRequest(source, PIPELINE, tuned), progress=quiet)
    assert max(c.max_rel for c in found) < LIMITS[dtype][0]


def test_a_program_in_training_has_the_tasks_of_both_halves(session, tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh())
    file = save(module, (torch.ones(2, 8),), tmp_path / "layer.pt")
    source, pipeline = source_from_file(file, training=True), default_pipeline("relay", True)
    joint = session.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet)
    request = BuildRequest(source, pipeline, PLAIN, 1).split_at(cut(joint, "keep_all").ids)
    found = session.tasks(request, progress=quiet)
    assert len(found) > 1
    assert any(t.nodes for t in found)


def test_packed_weights_are_for_constants_alone(session):
    constant = session.program_after(MLP, PIPELINE)
    free = session.program_after(MLP, PIPELINE.switched(1, False))
    options, kinds = BuildOptions(PLAIN), []
    for program, fixed in ((constant, True), (free, False)):
        function = runtime.prepared(program, program.main, options)
        assert templates.constant_weights(function) is fixed
        first = templates.operators(templates.optimised(function, options), options)[0]
        task = templates.workload(first, runtime.parse(PLAIN))
        kinds.append({name for name, _ in task.program.choices})
    assert kinds == [{"dense_nopack.x86", "dense_pack.x86"}, {"dense_nopack.x86"}]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda *_: os.kill(os.getpid(), signal.SIGKILL), "terminated"),
        rare(lambda *_: time.sleep(60), "Timeout"),
    ],
)
def test_a_schedule_that_crashes_or_hangs_is_an_answer_and_the_next_goes_on(pool, fault, says):
    here, right = tuning.AloneRunner(pool, PLAIN, 1), lambda *_: 0.5
    results = []
    for timed in (fault, right):
        with patch.object(trial, "timed", timed), spawning():
            results += here.run([None], [])
    assert results[0].error_no and says in repr(results[0].costs[1])
    assert results[1].costs == (0.5,) and not results[1].error_no
