"""Recordings of compiles, in the TVM of each engine: what is written, and what a kill leaves."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tvm

from relascope import Record, recording
from relascope.core.errors import EngineError
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.recorder.reading import read
from relascope.viz.rows.recording import step_diff


def engine():
    return "relay" if "tvm.relay" in sys.modules else "relax"


@tvm.ir.transform.module_pass(opt_level=0, name="outer")
def outer(mod, context):
    return inner(mod)


@tvm.ir.transform.module_pass(opt_level=2, name="inner")
def inner(mod, context):
    time.sleep(0.05)
    return tvm.IRModule({**dict(mod.functions), "other": mod["main"]})


@tvm.ir.transform.module_pass(opt_level=0, name="breaks")
def breaks(mod, context):
    raise ValueError("no axis 7 here")


@pytest.fixture
def mod(session):
    pipeline = default_pipeline(engine(), False)
    return session.program_after(ModelSource("mlp", batch=2), pipeline).mod


def test_passes_are_nested_with_their_times_and_texts(mod, tmp_path):
    path = tmp_path / "run.rsc"
    with tvm.transform.PassContext(opt_level=3, instruments=[Record(path)]):
        outer(mod)
        inner(mod)
    found = read(path)
    assert found.whole and found.about["tvm"] == str(tvm.__version__)
    assert [(p.name, p.depth, p.opt_level) for p in found.passes] == [
        ("outer", 0, 0),
        ("inner", 1, 2),
        ("inner", 0, 2),
    ]
    first, second, _ = found.passes
    assert first.seconds >= second.seconds >= 0.05
    assert 0 <= first.own_seconds < 0.05
    assert first.touched == second.touched == ("other",)
    assert "@@" in step_diff(found, 0) and "+++ other after" in step_diff(found, 0)
    assert first.after["main"] == first.after["other"] == first.before["main"]
    written = [json.loads(x) for x in path.read_text().splitlines()]
    texts = [x["text"] for x in written if "text" in x]
    assert len(texts) == len(set(texts)) == len({*first.before.values(), *first.after.values()})


def test_a_pass_that_fails_has_its_message_and_all_before_it(mod, tmp_path):
    path = tmp_path / "run.rsc"
    with (
        pytest.raises(Exception, match="no axis 7 here"),
        tvm.transform.PassContext(instruments=[Record(path)]),
    ):
        breaks(inner(mod))
    one, last = read(path).passes
    assert one.failure is None and one.touched == ("other",)
    assert "no axis 7 here" in last.failure
    assert last.after is None and last.touched is None


def test_contexts_that_are_opened_inside_are_recorded_and_later_ones_not(mod, tmp_path):
    path = tmp_path / "run.rsc"
    init = tvm.transform.PassContext.__init__
    with recording(path, "names"):
        inner(mod)  # in no context of its own
        with tvm.transform.PassContext(opt_level=1):
            outer(mod)
    inner(mod)
    found = read(path)
    assert [p.name for p in found.passes] == ["inner", "outer", "inner"]
    assert found.passes[0].before is None and found.passes[0].touched is None
    assert tvm.transform.PassContext.__init__ is init
    assert not list(tvm.transform.PassContext.current().instruments)


def test_an_error_that_leaves_a_recording_is_its_last_passes(mod, tmp_path):
    with pytest.raises(Exception, match="axis 7"), recording(tmp_path / "run.rsc"):
        breaks(mod)
    (only,) = read(tmp_path / "run.rsc").passes
    assert "axis 7" in only.failure


def test_a_build_is_recorded_down_to_its_kernels(session, tmp_path):
    pipeline = default_pipeline(engine(), False)
    program = session.program_after(ModelSource("mlp", batch=2), pipeline)
    with recording(tmp_path / "run.rsc"):
        session._backend.build(program, None, "llvm -opt-level=0")
    names = {p.name for p in read(tmp_path / "run.rsc").passes}
    wanted = {
        "relay": {"FuseOps", "LowerTE", "tir.MakePackedAPI"},
        "relax": {"LegalizeOps", "tirx.MakePackedAPI"},
    }
    assert wanted[engine()] <= names


def test_it_needs_nothing_but_python_until_it_records():
    unwanted = "{'numpy', 'streamlit', 'torch', 'tvm'}"
    code = f"import sys, relascope.recorder.reading; sys.exit(bool({unwanted} & {{*sys.modules}}))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_levels_are_named(tmp_path):
    with pytest.raises(ValueError, match="choose of names, text"):
        Record(tmp_path / "run.rsc", "all")


BOOT = {
    "relay": "from relascope.engine.relay.tvm.boot import boot\nboot()\n",  # of this checkout
    "relax": "",
}

SCRIPT = """
import sys, time
import tvm

@tvm.ir.transform.module_pass(opt_level=0, name="waits")
def waits(mod, context):
    print("begun", flush=True)
    time.sleep(float(sys.argv[1]))
    return mod

@tvm.ir.transform.module_pass(opt_level=0, name="quick")
def quick(mod, context):
    return mod

assert "streamlit" not in sys.modules
mod = tvm.IRModule({})
waits(quick(mod))
if len(sys.argv) > 2:
    raise RuntimeError(sys.argv[2])
"""


def started(folder, *arguments):
    """A script that was not changed, as `relascope record` starts it, with this process's TVM."""
    (folder / "compile.py").write_text(BOOT[engine()] + SCRIPT)
    command = [sys.executable, "-m", "relascope", "record", "-o", folder / "run.rsc", "--"]
    return subprocess.Popen(
        [*command, sys.executable, folder / "compile.py", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_script_is_recorded_without_a_change(tmp_path):
    told, _ = started(tmp_path, "0").communicate(timeout=100)
    assert "2 passes are in" in told
    found = read(tmp_path / "run.rsc")
    assert [p.name for p in found.passes] == ["quick", "waits"]
    told, _ = started(tmp_path, "0", "it is enough").communicate(timeout=100)
    assert "the program ended with 1" in told


def test_a_kill_leaves_all_before_it(tmp_path):
    running = started(tmp_path, "600")
    assert running.stdout.readline() == "begun\n"
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    done, under_way = read(tmp_path / "run.rsc").passes
    assert done.seconds is not None and done.touched == ()
    assert (under_way.name, under_way.seconds, under_way.failure) == ("waits", None, None)


def begin(module):
    about = b'{"begin": 0, "depth": 0, "name": "x", "opt_level": 0, "module": '
    return about + module + b"}\n"


def test_what_is_no_recording_is_refused(tmp_path):
    path = tmp_path / "run.rsc"
    with pytest.raises(EngineError, match="cannot be read"):
        read(path)
    Record(path)
    head = path.read_bytes()
    for data, why in (
        (b"", "is no recording"),
        (b"hello\n", "damaged in line 1"),
        (head.replace(b'"relascope_recording": 1', b'"relascope_recording": 9'), "version 9"),
        (head + b'{"end": 3, "seconds": 1}\n', "damaged in line 2"),
        (head + b'{"failed": 0, "seconds": 1, "message": ""}\n', "damaged in line 2"),
        (head + begin(b'[null, {"main": "0a"}, []]'), "damaged in line 2"),
        (head + begin(b"0"), "damaged in line 2"),
        (head + begin(b"null") + b'{"end": -1, "seconds": 1}\n', "damaged in line 3"),
        (head + begin(b"null") + b'{"end": 0, "seconds": NaN}\n', "damaged in line 3"),
        (head + b"[" * 100_000 + b"\n", "damaged in line 2"),
        (head + b'{"begin": 1, "depth": 0, "name": "x", "opt_level": 0}\n', "damaged in line 2"),
    ):
        path.write_bytes(data)
        with pytest.raises(EngineError, match=why):
            read(path)
    path.write_bytes(head + b'{"begin": 0, "dep')
    assert not read(path).whole
