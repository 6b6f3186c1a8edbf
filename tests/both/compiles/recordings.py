"""Recordings of compiles, in the TVM of each engine: what is written, and what a kill leaves."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pkgutil import resolve_name

import numpy as np
import pytest
import tvm

import relascope
from answers import ran
from quick import ENGINE
from relascope import Record, recording
from relascope.core.errors import EngineError
from relascope.core.graph import Kind
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.passes.pipeline import Pipeline
from relascope.recorder import environment
from relascope.recorder.contents import Contents
from relascope.recorder.reading import Context, read
from relascope.recorder.writing import Writer
from relascope.viz.compare.recording import RecordedCompile
from relascope.viz.compare.runs import compare, run_of
from relascope.viz.rows.recording import step_diff


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
def mlp(session):
    return session.program_after(ModelSource("mlp", batch=2), default_pipeline(ENGINE, False))


@pytest.fixture
def mod(mlp):
    return mlp.mod


def test_passes_are_nested_with_their_times_and_texts(mod, tmp_path):
    path = tmp_path / "run.rsc"
    with tvm.transform.PassContext(opt_level=3, instruments=[Record(path)]):
        outer(mod)
        inner(mod)
    found = read(path)
    assert found.whole and found.about["tvm"] == str(tvm.__version__)
    passes = [(p.name, p.depth, p.opt_level) for p in found.passes]
    assert passes == [("outer", 0, 0), ("inner", 1, 2), ("inner", 0, 2)]
    first, second, _ = found.passes
    assert first.seconds >= second.seconds >= 0.05
    assert 0 <= first.own_seconds < 0.05
    assert first.touched == second.touched == ("other",)
    assert "@@" in step_diff(found, 1) and "+++ other after" in step_diff(found, 1)
    assert first.after["main"] == first.after["other"] == first.before["main"]
    written = [json.loads(x) for x in path.read_text().splitlines()]
    texts = [x["text"] for x in written if "text" in x]
    assert len(texts) == len(set(texts)) == len({*first.before.values(), *first.after.values()})


def test_a_live_module_its_function_and_its_recording_are_shown(mod, tmp_path):
    whole, alone = (json.loads(relascope.show(m).file(".json")) for m in (mod, mod["main"]))
    assert whole["ir"] == ENGINE and len(whole["nodes"]) > 5
    assert len(alone["nodes"]) == len(whole["nodes"])
    with pytest.raises(EngineError, match="no function nothing"):
        relascope.show(tvm.IRModule({**dict(mod.functions), "other": mod["main"]}), "nothing")
    with pytest.raises(EngineError, match="type int cannot be shown"):
        relascope.show(3)
    path = tmp_path / "run.rsc"
    with recording(path, "graphs"):
        inner(mod)
    shown = relascope.show(path)
    assert "1 passes" in repr(shown)
    assert shown.save(tmp_path / "run.html").read_text() == shown.html()


def test_a_pass_that_fails_has_its_message_and_all_before_it(mod, tmp_path):
    path = tmp_path / "run.rsc"
    context = tvm.transform.PassContext(instruments=[Record(path)])
    with pytest.raises(Exception, match="no axis 7 here"), context:
        breaks(inner(mod))
    one, last = read(path).passes
    assert one.failure is None and one.touched == ("other",)
    assert "no axis 7 here" in last.failure
    assert last.after is None and last.touched is None
    with pytest.raises(Exception, match="axis 7"), recording(path):
        breaks(mod)
    (only,) = read(path).passes
    assert "axis 7" in only.failure


def test_contexts_are_recorded_with_their_parameters_while_it_is_open(mod, tmp_path):
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
    config = f"{ENGINE}.FuseOps.max_depth"
    given = {"opt_level": 1, "required_pass": ["inner"], "disabled_pass": ["breaks"]}
    with tvm.transform.PassContext(**given, config={config: 7}, instruments=[Record(path)]):
        outer(mod)
    first, second = read(path).passes
    assert first.context is second.context and 0 <= first.at <= second.at
    assert first.context == Context(1, ("inner",), ("breaks",), {config: "7"})


def test_a_failure_is_known_and_the_next_pass_is_no_part_of_it(mod, tmp_path):
    with recording(tmp_path / "run.rsc"):
        with suppress(Exception):
            breaks(mod)
        inner(mod)
    with tvm.transform.PassContext(instruments=[Record(tmp_path / "other.rsc")]):
        with suppress(Exception):
            breaks(mod)
        inner(mod)
    for name in ("run.rsc", "other.rsc"):
        bad, good = read(tmp_path / name).passes
        assert "no axis 7 here" in bad.failure
        assert (good.name, good.depth, good.failure) == ("inner", 0, None)
    run = tvm.get_global_func("transform.RunPass")

    def unseen():
        run(breaks, mod)

    with recording(tmp_path / "run.rsc"):
        inner(mod)
        with suppress(Exception):
            unseen()
        inner(mod)
    _, bad, good = read(tmp_path / "run.rsc").passes
    assert "did not return" in bad.failure
    assert (good.name, good.depth, good.failure) == ("inner", 0, None)


def test_threads_and_copies_of_the_process_do_not_mix(mod, tmp_path, monkeypatch):
    path, written = tmp_path / "run.rsc", Writer.line

    def slowly(self, fields):
        time.sleep(0.005)  # so that threads wait for one another, for most of the time
        return written(self, fields)

    monkeypatch.setattr(Writer, "line", slowly)

    def twice():
        outer(mod)
        outer(mod)

    with recording(path):
        threads = [threading.Thread(target=twice) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        child = os.fork()
        if not child:
            outer(mod)
            os._exit(0)
        os.waitpid(child, 0)
        inner(mod)
    found = read(path)
    assert {p.thread for p in found.passes} == {0, 1, 2, 3}
    for thread in range(3):
        assert [p.depth for p in found.passes if p.thread == thread] == [0, 1, 0, 1]
    (beside,) = environment.files(path)[1:]
    copy = read(beside)
    assert copy.about["parent"] == found.about["process"] == os.getpid()
    assert [p.name for p in copy.passes] == ["outer", "inner"]
    assert copy.text(copy.passes[0].before["main"]) == found.text(found.passes[0].before["main"])


def test_a_module_or_its_graph_is_the_engines_with_or_without_numbers(mlp, tmp_path, mod):
    with recording(tmp_path / "run.rsc", "graphs"):
        inner(mlp.mod)
    found = read(tmp_path / "run.rsc")
    main = found.passes[0].before["main"]
    draw = resolve_name(f"relascope.engine.{ENGINE}.draw.to_graph:to_graph")
    mine, engines = found.graph(main), draw(mlp)[0]
    assert mine.operators == engines.operators and mine.edge_count == engines.edge_count
    sizes = {str(kind) for kind, _ in found.constants(main)}
    assert sizes and sizes <= {str(n.outputs[0]) for n in engines if n.kind is Kind.CONSTANT}
    constants = [n for n in mine if n.kind is Kind.CONSTANT]
    assert constants and all(len(n.attrs.get("value", "")) <= 32 for n in constants)
    assert found.module(0, True) is None
    if ENGINE == "relay":
        from tvm.ir import structural_equal as same
    else:
        from tvm_ffi import structural_equal as same
    with recording(tmp_path / "run.rsc", "modules"):
        inner(mod)
    found = read(tmp_path / "run.rsc")
    before, after = (tvm.ir.load_json(found.module(0, side)) for side in (False, True))
    assert same(before, mod) and same(after["other"], mod["main"])
    lines = map(json.loads, found.path.read_text().splitlines())
    blobs = [x["blob"] for x in lines if "blob" in x]
    assert blobs and len(blobs) == len(set(blobs))


def test_what_changes_in_constants_alone_is_a_change_and_what_is_made_anew_none(mod, tmp_path):
    @tvm.ir.transform.module_pass(opt_level=0, name="anew")
    def anew(mod, context):
        return tvm.ir.load_json(tvm.ir.save_json(mod))

    with recording(tmp_path / "run.rsc"):
        assert not anew(mod)["main"].same_as(mod["main"])
    (only,) = read(tmp_path / "run.rsc").passes
    assert only.touched == ()

    def module(value):
        if ENGINE == "relay":
            from tvm import relay

            x = relay.var("x", shape=(2,))
            made = relay.Function([x], relay.add(x, relay.const(np.array([value] * 2, "float32"))))
            return tvm.IRModule.from_expr(made)
        from tvm import relax

        x, builder = relax.Var("x", relax.TensorType((2,), "float32")), relax.BlockBuilder()
        with builder.function("main", [x]):
            constant = relax.const(np.array([value] * 2, "float32"))
            builder.emit_func_output(builder.emit(relax.op.add(x, constant)))
        return builder.get()

    @tvm.ir.transform.module_pass(opt_level=0, name="doubles")
    def doubles(mod, context):
        return module(2.0)

    with recording(tmp_path / "run.rsc"):
        doubles(module(1.0))
        doubles(module(2.0))
    first, second = read(tmp_path / "run.rsc").passes
    assert first.touched == ("main",) and second.touched == ()


def test_a_build_is_recorded_down_to_its_kernels_code(session, mlp, tmp_path):
    called = tvm.transform.Pass.__call__
    with recording(tmp_path / "run.rsc", "graphs"):
        session.backend.build(mlp, None, "llvm -opt-level=0")
    found = read(tmp_path / "run.rsc")
    of_relax = {"LegalizeOps", "tirx.MakePackedAPI"}
    wanted = {"relay": {"FuseOps", "LowerTE", "tir.MakePackedAPI"}}.get(ENGINE, of_relax)
    assert wanted <= {p.name for p in found.passes}
    code = found.kernels[-1]
    made = found.passes[code.run]
    assert (made.kind, made.name, code.language) == ("codegen", "target.build.llvm", "llvm")
    assert all(name in found.text(code.text) for name in made.before if "fused" in name)
    loops = next(p for p in found.passes if "MakePackedAPI" in p.name)
    hashes = {*loops.before.values(), *loops.after.values()}
    assert all(found.graph(h) is None and found.no_graph(h) == "" for h in hashes)
    assert any("for " in found.text(h) for h in hashes)
    assert tvm.transform.Pass.__call__ is called


def test_a_fault_of_the_recorder_ends_the_recording_and_not_the_compile(
    mod, tmp_path, monkeypatch, capsys
):
    def full(*_):
        raise OSError(28, "No space left on device")

    with recording(tmp_path / "run.rsc"):
        inner(mod)
        monkeypatch.setattr(Contents, "functions", full)
        assert "other" in [v.name_hint for v in outer(mod).functions]
        monkeypatch.undo()
        inner(mod)
    found = read(tmp_path / "run.rsc")
    assert "No space left" in found.stopped and len(found.passes) == 1
    assert "the recording ends here" in capsys.readouterr().err


def test_levels_are_named_and_nothing_but_python_is_needed_until_it_records(tmp_path):
    with pytest.raises(ValueError, match="choose from names, text, graphs, modules"):
        Record(tmp_path / "run.rsc", "all")
    unwanted = "{'numpy', 'streamlit', 'torch', 'tvm'}"
    code = f"import sys, relascope.recorder.reading; sys.exit(bool({unwanted} & {{*sys.modules}}))"
    subprocess.run([sys.executable, "-c", code], check=True)


BOOT = "from relascope.engine.relay.tvm.boot import boot\nboot()\n" if ENGINE == "relay" else ""
"""Of this checkout."""

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


def started(folder, *arguments, options=()):
    """A script that was not changed, as `relascope record` starts it, with this process's TVM."""
    (folder / "compile.py").write_text(BOOT + SCRIPT)
    command = [sys.executable, "-m", "relascope", "record", "-o", folder / "run.rsc", *options]
    return subprocess.Popen(
        [*command, "--", sys.executable, folder / "compile.py", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_script_is_recorded_without_a_change(tmp_path):
    told, _ = started(tmp_path, "0").communicate(timeout=100)
    assert "2 passes are in" in told
    found = read(tmp_path / "run.rsc")
    assert [p.name for p in found.passes] == ["quick", "waits"] and found.has_page
    failing = started(tmp_path, "0", "it is enough", options=["--no-page"])
    told, _ = failing.communicate(timeout=100)
    assert not read(tmp_path / "run.rsc").has_page
    assert "the program ended with 1" in told and failing.returncode == 1


@pytest.mark.exhaustive
def test_what_a_script_starts_is_recorded_beside_it_and_variables_alone_record_it(tmp_path):
    script, child, path = (tmp_path / name for name in ("all.py", "compile.py", "run.rsc"))
    run = "subprocess.run([sys.executable, *sys.argv[1:]], check=True)"
    script.write_text(f"import subprocess, sys\nfor _ in range(2):\n    {run}\n")
    child.write_text(BOOT + SCRIPT)
    record = sys.executable, "-m", "relascope", "record"
    about = "--json", "--level", "names", "-o", path, "--"
    done = ran(*record, *about, sys.executable, script, child, "0")
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["passes"] == 4 and [f["passes"] for f in document["files"]] == [2, 2]
    told = ran(*record, "-o", path := tmp_path / "again.rsc", "--env").stdout
    variables = dict(line.removeprefix("export ").split("=", 1) for line in told.splitlines())
    assert os.path.basename(variables["PYTHONPATH"].partition(os.pathsep)[0]) == "start"
    given = {**os.environ, **variables}
    assert not ran(sys.executable, child, "0", env=given).returncode
    assert len(read(path).passes) == 2
    given.pop("PYTHONPATH")  # a script that imports relascope needs no more
    child.write_text("import relascope\n" + child.read_text())
    assert not ran(sys.executable, child, "0", env=given).returncode
    (beside,) = environment.files(path)[1:]
    assert len(read(beside).passes) == 2


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
        (b"", "is not a recording"),
        (b"hello\n", "damaged in line 1"),
        (head.replace(b'"relascope_recording": 1', b'"relascope_recording": 9'), "version 9"),
        (head + b'{"end": 3, "seconds": 1}\n', "damaged in line 2"),
        (head + b'{"failed": 0, "seconds": 1, "message": ""}\n', "damaged in line 2"),
        (head + begin(b'[null, {"main": "0a"}, []]'), "damaged in line 2"),
        (head + begin(b"0"), "damaged in line 2"),
        (head + begin(b"null") + b'{"end": -1, "seconds": 1}\n', "damaged in line 3"),
        (head + begin(b"null") + b'{"end": 0, "seconds": NaN}\n', "damaged in line 3"),
        (head + begin(b"null") + b'{"end": 0, "seconds": 1e308}\n', "damaged in line 3"),
        (head + begin(b"null").replace(b'h": 0', b'h": 201'), "inside one another"),
        (head + begin(b"null").replace(b'l": 0', b'l": -1'), "damaged in line 2"),
        (head + b"[" * 100_000 + b"\n", "damaged in line 2"),
        (head + b'{"begin": 1, "depth": 0, "name": "x", "opt_level": 0}\n', "damaged in line 2"),
    ):
        path.write_bytes(data)
        with pytest.raises(EngineError, match=why):
            read(path)
    path.write_bytes(head + b'{"begin": 0, "dep')
    assert not read(path).whole


def compiled(session, path, target="llvm", opt_level=3):
    program = session.program_after(ModelSource("bert_layer"), Pipeline())
    with recording(path, "graphs"), tvm.transform.PassContext(opt_level=opt_level):
        if ENGINE == "relay":
            tvm.relay.build(program.mod, target)
        else:
            tvm.relax.build(program.mod, tvm.target.Target({"kind": target}))
    its = RecordedCompile(read(path))
    return run_of(its, its.ir, its.source, its.pipeline, path.name, its.about)


@pytest.mark.exhaustive
def test_compiles_held_against_each_other(session, tmp_path):
    usual = compiled(session, tmp_path / "a.rsc")
    again = compare(usual, compiled(session, tmp_path / "b.rsc"))
    assert again["same"], "places in memory and counted names are no difference"
    lower = compare(compiled(session, tmp_path / "c.rsc", opt_level=1), usual)
    if ENGINE == "relay":
        assert lower["first_difference"]["pass"] == "EliminateCommonSubexpr"
        was, now = (lower["end"]["figures"][side]["kernels"] for side in ("a", "b"))
        assert was > now > 0
    else:
        assert lower["same"], "nothing in its pipeline asks for a higher level"
    other = compare(usual, compiled(session, tmp_path / "d.rsc", target="c"))
    assert not other["same"] and other["other_code"]
    assert other["end"]["same"] and other["end"]["figures"]["a"]["kernels"] > 0
