"""A child process is asked, watched, cancelled, and named when it dies; its answers run nothing."""

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from answers import answer, ran, refused
from place import ROOT
from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind, Literal, Node, TensorType
from relascope.core.memo import Memo
from relascope.engine import process as process_of_engine
from relascope.engine import turns, wire
from relascope.engine.building.explain import explain
from relascope.engine.client import EngineClient
from relascope.engine.limits import Limits, Unit, Usage
from relascope.engine.places import PLACES
from relascope.engine.process import EngineProcess, Wants, death, usage
from relascope.engine.protocol.results import SplitResult
from relascope.engine.protocol.source import ModelSource
from relascope.engine.supervisor import Job, _Exchange, _Stopped
from relascope.engine.turns import alone, beside, shared_file
from relascope.passes.pipeline import Pipeline

FAKE = "fake_session:FakeSession"
CRASH = "import ctypes; ctypes.string_at(0)"
LAST = "import os, sys; print('about to go', file=sys.stderr, flush=True); os._exit({})"


@pytest.fixture
def client():
    with EngineClient("fake", FAKE) as client:
        yield client


def running(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


LONG = 60.0  # s; only what hangs takes so long, on a busy machine too
FOREVER = 600.0  # s; whoever waits for the end of such a request hangs


def wait_until(condition, seconds: float = LONG) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def failure(job_or_call) -> EngineError:
    with pytest.raises(EngineError) as caught:
        job_or_call()
    return caught.value


def test_it_starts_at_the_first_request_and_answers(client):
    assert client.pid is None
    assert client.call("echo", {"a": [1, 2.5]}, twice=True) == ({"a": [1, 2.5]}, {"a": [1, 2.5]})
    assert client.pid not in (None, os.getpid())
    assert client.call("count") == 2, "the same session answers"
    assert client.warm().result(LONG).path == str(client.pid), "it describes itself"
    data = os.urandom(20_000_000)
    assert client.call("echo", data) == data


def test_a_unit_that_crosses_a_limit_raises_and_the_request_goes_on(client):
    assert client.call("unit", 0.2, 0) == "done", "there is no limit"
    client.limit(Limits(1.0, 100.0))
    pid = client.pid
    assert client.call("unit", 0.0, 1) == "done"
    assert client.pid == pid
    long = "The first took longer than 1 s, the limit, and was stopped."
    assert client.call("unit", FOREVER, 0) == long
    assert client.pid != pid, "in another process"
    began = time.monotonic()
    assert client.call("unit", FOREVER, 0) == long
    assert time.monotonic() - began < 1.0, "that is known"
    client.limit(Limits(0.0, 100.0))
    large = "The first took more than 100 MiB of memory, the limit, and was stopped."
    assert client.call("unit", FOREVER, 300_000_000) == large
    assert client.call("unit", 0.2, 0) == "done"


def test_a_file_that_crosses_its_limit_fails_before_another_process_starts(client, monkeypatch):
    started = []

    class Counted(EngineProcess):
        def __init__(self, *about):
            super().__init__(*about)
            started.append((self.pid, *map(lambda job: job.done, jobs)))

    monkeypatch.setattr("relascope.engine.supervisor.EngineProcess", Counted)
    jobs = []
    client.call("count")
    jobs.append(client.submit("spin"))
    error = failure(lambda: jobs[0].result(LONG))
    assert error.message == "Opening it took longer than 0 s, the limit, and was stopped."
    assert len(started) == 1 and client.call("count") == 1
    assert started[1][1], "the new process starts when the error is known"


@pytest.mark.parametrize(
    ("used", "crosses"),
    [
        (Usage(6.9, 6.9), False),
        (Usage(7.1, 7.1), True),
        (Usage(7.1, 28.0), True),  # several threads
        (Usage(6.9, 28.0), False),
        (Usage(60.0, 3.0), False),  # it waits for a processor
        (Usage(71.0, 3.0), True),
        (Usage(1.0, 1.0, 1 << 31), True),
        (Usage(1.0, 1.0, 1 << 30), False),
    ],
)
def test_a_file_is_limited_by_processor_time_and_memory(used, crosses):
    unit = Unit("Opening it", "it", "file", "", seconds=7.0, memory=1 << 30)
    assert (Limits().crossed(unit, used) is not None) == crosses


def test_what_an_engine_started_counts_and_shared_pages_count_once():
    block = b"x" * 200_000_000
    before = usage(os.getpid())
    spin = "import time\nb = b'x' * 200_000_000\nwhile time.process_time() < 0.3: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE) as child:
        assert wait_until(lambda: (usage(os.getpid()) - before).memory > 150e6)
        assert wait_until(lambda: (usage(os.getpid()) - before).processor > 0.25)
        assert (usage(os.getpid()) - before).memory < 350e6
        child.communicate(b"\n")
    copy = os.fork()
    if not copy:
        time.sleep(60)
        os._exit(len(block) == 0)
    try:
        assert (usage(os.getpid()) - before).memory < len(block), "a copy shares its pages"
    finally:
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)


class Scripted:
    def __init__(self, *script):
        self.script = iter(script)
        self.used = Usage()

    def receive(self, seconds):
        message, self.used = next(self.script)
        return message

    def usage(self):
        return self.used


def exchange(*script):
    job = Job(None, 1, "load", b"")
    return _Exchange(job, Scripted(*script), Limits, lambda fraction, text: None)


def test_what_it_waits_for_counts_for_nothing():
    unit = Unit("Opening it", "it", "file", "", seconds=7.0, memory=1 << 30)
    start = [
        (("begun", 1), Usage()),
        (("unit", 1, unit), Usage(1, 1, 1000)),
        (("waits", 1, "starting a TVM"), Usage(2, 2, 1000)),
        (None, Usage(90, 90, 2 << 30)),
        (("waits", 1, ""), Usage(90, 90, 2 << 30)),
        (None, Usage(95, 95, 2 << 30)),
    ]
    value = ("result", 1, "done")
    assert exchange(*start, (value, Usage(95, 95, 2 << 30))).answer() == ("result", "done")
    with pytest.raises(_Stopped) as stopped:
        exchange(*start, (None, Usage(97, 97, 2 << 30)), (value, Usage())).answer()
    assert stopped.value.unit == unit


def test_progress_is_called_in_the_calling_thread_and_the_last_is_never_lost(client):
    seen = []
    heard = lambda f, t: seen.append((f, t, threading.get_ident()))  # noqa: E731
    assert client.call("climb", 5, 0.05, on_progress=heard) == 5
    assert seen[-1] == (1.0, "step 5", threading.get_ident())
    fractions = [f for f, _, _ in seen]
    assert fractions == sorted(fractions)
    assert {t for _, _, t in seen} == {threading.get_ident()}
    client.call("count")
    for _ in range(50):
        seen = []
        client.call("climb", 3, 0.0, on_progress=lambda f, t, seen=seen: seen.append(t))
        assert seen[-1] == "step 3"


def test_a_job_can_be_watched(client, tmp_path):
    job = client.submit("hold", str(tmp_path / "go"))
    assert wait_until(lambda: job.progress == (0.5, "held"))
    assert job.method == "hold" and not job.done
    with pytest.raises(TimeoutError):
        job.result(0.01)
    waited = job.seconds
    assert waited > 0.01
    (tmp_path / "go").touch()
    assert job.result(LONG) is None and job.done
    took = job.seconds
    assert took > waited
    time.sleep(0.02)
    assert job.seconds == took, "time stands still once it is done"


def test_requests_run_one_at_a_time_in_order_and_many_threads_may_ask(client):
    jobs = [client.submit("count") for _ in range(20)]
    assert [j.result(LONG) for j in jobs] == list(range(1, 21))
    answers = []

    def ask(i):
        answers.append((i, client.call("echo", i)))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert sorted(answers) == [(i, i) for i in range(20)]


def test_the_child_outlives_the_thread_that_started_it_and_recurses_deep_in_c(client):
    thread = threading.Thread(target=client.call, args=("count",))
    thread.start()
    thread.join()
    pid = client.pid
    time.sleep(0.2)
    assert client.call("count") == 2 and client.pid == pid
    # libc compiles nested groups by recursion: with the eight megabytes of stack that a process
    # usually has, this is a crash.
    groups = "b'(' * 15_000 + b'x' + b')' * 15_000"
    code = f"import ctypes; result = ctypes.CDLL(None).regcomp(b' ' * 4096, {groups}, 1)"
    assert client.call("do", code) == 0


def test_errors_for_people_arrive_whole_and_others_are_explained(client, caplog):
    said = EngineError("operator", "no such operator", "aten::foo", "do without").to_json()
    code = f"from relascope.core.errors import EngineError; raise EngineError(**{said})"
    assert failure(lambda: client.call("do", code)).to_json() == said
    with caplog.at_level("WARNING", logger="relascope.engine"):
        error = failure(lambda: client.call("do", "raise ValueError('what went wrong')"))
    assert (error.kind, error.message) == ("engine", "ValueError: what went wrong")
    assert "fake_session.py" in caplog.text and "ValueError: what went wrong" in caplog.text
    assert failure(lambda: client.call("step", "1 / 0")).kind == "pass"
    deep = "def deep(): deep()\ndeep()"
    for code, words in {deep: "nested too deeply", "raise SystemExit(3)": "SystemExit"}.items():
        assert words in failure(lambda code=code: client.call("do", code)).message
    assert "nosuch" in failure(lambda: client.call("nosuch")).message
    assert failure(lambda: client.submit("echo", threading.Lock())).kind == "usage"
    assert client.call("count") == 1, "the session goes on"


@pytest.mark.engine
def test_results_must_be_plain(client):
    error = failure(lambda: client.call("do", "import threading; result = threading.Lock()"))
    assert (error.kind, error.where) == ("engine", "lock")
    assert "not plain data" in error.message
    error = failure(lambda: client.call("do", "import torch; result = torch.float32"))
    assert "cannot read" in error.message and "torch" in error.message
    assert client.call("count") == 1


def test_what_it_prints_does_not_reach_our_stdout(client, capfd, caplog):
    code = "import os, subprocess; print('on stdout', flush=True); os.write(1, b'on 1\\n');"
    with caplog.at_level("DEBUG", logger="relascope.engine"):
        client.call("do", f"{code} subprocess.run(['echo', 'from a process'], check=True)")
    assert capfd.readouterr().out == ""
    for text in ("on stdout", "on 1", "from a process"):
        assert text in caplog.text


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (CRASH, ("signal 11 (SIGSEGV)", "in do")),
        ("import os, time; os.kill(os.getpid(), 9); time.sleep(10)", ("signal 9 (SIGKILL)",)),
        (LAST.format(3), ("exit status 3", "about to go")),
        (LAST.format(0), ("exit status 0",)),
    ],
)
def test_a_death_is_named(client, code, words):
    client.call("count")
    job = client.submit("do", code)
    queued = client.submit("count")
    error = failure(lambda: job.result(LONG))
    assert (error.kind, error.where) == ("engine", "do")
    assert all(word in error.message for word in words)
    assert queued.result(LONG) == 1, "what waited had no part in it"


def test_a_death_before_work_began_is_not_told_and_one_over_a_file_is_the_files(client):
    """Killed when it was idle, and asked before anybody saw that."""
    for _ in range(5):
        client.call("count")
        os.kill(client.pid, signal.SIGKILL)
        assert client.call("count") == 1
    error = failure(lambda: client.call("crash_over", "model.pt"))
    message = "model.pt cannot be read: it crashes its reader (SIGSEGV)."
    assert (error.kind, error.message, error.where) == ("reader", message, "model.pt")
    assert client.call("count") == 1


def test_a_call_that_hangs_or_answers_too_much_has_a_limit(client, monkeypatch):
    client.limit(Limits(calls={"build": 0.3, "start": 600.0}))
    error = failure(lambda: client.call("sleep", FOREVER))
    assert error.message == "sleep took longer than 0.3 s, the limit of build, and was stopped."
    assert client.call("count") == 1
    monkeypatch.setattr(wire, "MOST_BYTES", 1 << 20)
    error = failure(lambda: client.call("echo", b"x" * (1 << 20)))
    assert "larger than 1 MiB" in error.message
    assert client.call("count") == 1


def test_what_waits_for_a_turn_says_so_and_timing_is_alone(client, monkeypatch, tmp_path):
    file = os.open(tmp_path / "turns", os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr("relascope.engine.process.shared_file", lambda: file)
    with EngineClient("fake", FAKE) as other:
        timing = client.submit("timed", FOREVER)
        assert wait_until(lambda: timing.progress[1] == "timing")
        second = other.submit("count")
        assert wait_until(lambda: "alone" in second.progress[1])
        timing.cancel()
        assert second.result(LONG) == 1
        working = other.submit("sleep", FOREVER)
        assert wait_until(lambda: working.progress[1] == "asleep")
        timing = client.submit("timed", 0.0)
        assert wait_until(lambda: "until other engines are done" in timing.progress[1])
        assert not timing.done
        working.cancel()
        assert timing.result(LONG) == "timed" and other.call("count") == 1


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


def test_so_many_engines_and_no_more(monkeypatch):
    monkeypatch.setattr(PLACES, "most", 1)
    monkeypatch.setattr("relascope.engine.places._PAUSE", 0.1)
    with EngineClient("fake", FAKE) as first, EngineClient("fake", FAKE) as second:
        long = first.submit("sleep", FOREVER)
        assert wait_until(lambda: long.progress[1] == "asleep")
        waiting = second.submit("count")
        assert wait_until(lambda: "waiting for one of 1 engines" in waiting.progress[1])
        assert second.pid is None
        long.cancel()
        assert waiting.result(LONG) == 1, "a place became free"
        assert first.call("count") == 1, "the other was idle, and rests"
        assert second.pid is None


def test_an_engine_that_rests_starts_again(client):
    client.call("count")
    job = client.submit("sleep", FOREVER)
    assert not client.rest()
    assert client.rest(busy=True)
    assert failure(lambda: job.result(LONG)).kind == "cancelled"
    assert wait_until(lambda: client.pid is None)
    assert client.call("count") == 1
    assert client.rest()
    assert client.pid is None
    assert client.memory == 0


@pytest.mark.parametrize(
    ("status", "output", "ran_out", "words"),
    [
        (-signal.SIGKILL, "", True, "the system's kernel ended it"),
        (-signal.SIGKILL, "", False, "came from outside"),
        (-signal.SIGXCPU, "", False, "limit of processor time"),
        (-signal.SIGABRT, "what(): std::bad_alloc", False, "no more memory"),
        (-signal.SIGSEGV, "", False, "signal 11 (SIGSEGV) during load."),
    ],
)
def test_the_cause_of_a_death_is_told(status, output, ran_out, words):
    assert words in death("relax", "load", int(status), output, ran_out).message


def test_a_death_is_noticed_though_its_own_process_keeps_the_socket(client):
    copy = "import os, time\nresult = os.fork()\nif not result: time.sleep(60); os._exit(0)"
    other = client.call("do", copy)
    assert running(other)
    crash = client.submit("do", CRASH)
    failure(lambda: crash.result(LONG))
    assert wait_until(lambda: not running(other))


def test_cancel_while_running(client):
    client.call("count")
    before = client.pid
    job = client.submit("sleep", FOREVER)
    queued = [client.submit("count") for _ in range(3)]
    assert wait_until(lambda: job.progress[1] == "asleep")
    job.cancel()
    assert job.done and failure(job.result).kind == "cancelled"
    assert [j.result(LONG) for j in queued] == [1, 2, 3], "the others run in a new process"
    assert client.pid != before
    assert not running(before)
    job.cancel()
    assert failure(job.result).kind == "cancelled"


def test_cancel_while_waiting_and_after_the_end(client, tmp_path):
    first = client.submit("hold", str(tmp_path / "go"))
    pid_of_first = wait_until(lambda: client.pid is not None) and client.pid
    second, third = client.submit("count"), client.submit("count")
    second.cancel()
    assert second.done and failure(second.result).kind == "cancelled"
    (tmp_path / "go").touch()
    assert third.result(LONG) == 1, "the second never ran"
    assert first.result(LONG) is None
    assert client.pid == pid_of_first
    third.cancel()
    assert third.result() == 1
    assert client.call("count") == 2


def test_a_call_that_is_left_is_cancelled(client):
    class Stop(BaseException):
        pass

    def stop(fraction, text):
        if text == "asleep":
            raise Stop

    with pytest.raises(Stop):
        client.call("sleep", FOREVER, on_progress=stop)
    assert client.submit("count").result(LONG) == 1


def test_close_ends_everything(client):
    job = client.submit("sleep", FOREVER)
    queued = client.submit("count")
    assert wait_until(lambda: job.progress[1] == "asleep")
    pid = client.pid
    client.close()
    assert not running(pid) and client.pid is None
    assert [failure(j.result).kind for j in (job, queued)] == ["cancelled"] * 2
    assert failure(lambda: client.submit("count")).kind == "usage"
    client.close()


@pytest.mark.parametrize("busy", [False, True])
def test_a_collected_client_ends_its_process(busy):
    client = EngineClient("fake", FAKE)
    client.call("count")
    pid = client.pid
    job = client.submit("sleep", FOREVER) if busy else None
    del client
    gc.collect()
    assert wait_until(lambda: not running(pid))
    if job is not None:
        assert failure(lambda: job.result(LONG)).kind == "cancelled"


def test_clients_leave_no_threads_or_files_behind():
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with EngineClient("fake", FAKE) as client:
        client.call("count")
    threads, before = threading.active_count(), files()
    for _ in range(3):
        with EngineClient("fake", FAKE) as client:
            client.call("count")
            failure(lambda client=client: client.call("do", CRASH))
            client.call("count")
    assert threading.active_count() == threads
    assert files() == before


PARENT = """
import os, sys, time
from relascope.engine.client import EngineClient
client = EngineClient("fake", "fake_session:FakeSession")
client.call("count")
job = client.submit("sleep", 600)
other = client.pid
while job.progress[1] != "asleep":
    time.sleep(0.01)
print(other, flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit(0)"])
def test_the_child_ends_with_its_parent_in_the_middle_of_work(end):
    done = ran(sys.executable, "-c", PARENT.format(end=end), cwd=ROOT)
    assert wait_until(lambda: not running(int(done.stdout)))


def test_a_session_that_cannot_start_says_why_each_time():
    with EngineClient("fake", "fake_session:BrokenSession") as client:
        for _ in range(2):
            error = failure(lambda: client.call("describe"))
            assert (error.message, error.hint) == ("there is no compiler here", "install one")
            assert wait_until(lambda: client.pid is None)
    with EngineClient("fake", "fake_session:UnhappySession") as client:
        jobs = [client.submit("describe"), client.submit("count")]
        assert all("KeyError: 'surprise'" in failure(j.result).message for j in jobs)
    told = refused(says="no_such_module", hint="could not start")
    with EngineClient("fake", "no_such_module:Session") as client, told:
        client.call("describe")


def test_processes_are_forked_from_one_that_has_imported_what_they_need(client):
    client.warm().result(LONG)
    server = psutil.Process(client.pid).parent()
    assert server.parent().pid == os.getpid()
    with EngineClient("fake", FAKE) as other:
        other.warm().result(LONG)
        assert psutil.Process(other.pid).parent() == server
        assert os.getpgid(other.pid) == other.pid != os.getpgid(client.pid)
        shared = set(open_files(other.pid)) & set(open_files(server.pid)) - {"/dev/null"}
        assert not {f for f in shared if "relascope-coverage" not in f}  # which all processes have
    assert wait_until(lambda: len(server.children()) == 1), "what has ended is reaped"


def test_a_fork_server_ends_when_nothing_refers_to_it(client, monkeypatch):
    monkeypatch.setattr(process_of_engine, "_servers", Memo(1))
    client.warm().result(LONG)
    server = psutil.Process(client.pid).parent()
    # What it imported may depend on the environment.
    monkeypatch.setenv("RELASCOPE_LIMIT_SECONDS", "7")
    with EngineClient("fake", FAKE) as other:
        code = "import os; result = os.environ['RELASCOPE_LIMIT_SECONDS']"
        assert other.call("do", code) == "7"
        assert psutil.Process(other.pid).parent() != server
        assert client.call("count") == 1 and server.is_running()
        client.close()
        gc.collect()
        assert wait_until(lambda: not server.is_running())


def open_files(pid):
    """Sockets and pipes that a process has open, and files."""
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            yield os.readlink(file)


def test_where_the_fork_server_dies_its_processes_do_and_the_next_request_has_another(client):
    assert client.call("count") == 1
    server, pid = psutil.Process(client.pid).parent(), client.pid
    server.kill()
    assert wait_until(lambda: client.pid is None)
    assert client.call("count") == 1
    assert not running(pid) and psutil.Process(client.pid).parent() != server


def test_what_could_not_be_imported_is_imported_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with EngineClient("late", "late_session:Session") as client:
        assert "late_session" in failure(lambda: client.call("count")).message
        code = "class Session:\n    def count(self, progress):\n        return 7\n"
        (tmp_path / "late_session.py").write_text(code)
        assert client.call("count") == 7


def test_neither_client_nor_samples_import_a_compiler():
    code = "import json, sys, relascope.engine.client, relascope.samples\n"
    loaded = answer(f"{code}print(json.dumps([*sys.modules]))")
    assert not {"tvm", "torch", "numpy", "bitblas"} & set(loaded)


@pytest.mark.parametrize("kind", ["as it is", "written only", "a pipe", "closed"])
def test_the_reason_is_the_last_that_the_type_checker_wrote(kind, tmp_path, capfd):
    """Where standard error cannot be read, it is not lost."""

    class DiagnosticError(Exception):
        pass

    kept, told = os.dup(2), "see above"
    try:
        if kind == "closed":
            os.close(2)
        elif kind == "a pipe":
            os.dup2(os.pipe()[1], 2)
        else:
            if kind == "written only":
                os.dup2(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT), 2)
            os.write(2, b"error: older\n\x1b[31merror: \x1b[0mthe shapes do not fit\n --> here\n")
            told = "error: the shapes do not fit\n --> here"
        said = explain(DiagnosticError("see above"), "load").message
    finally:
        os.dup2(kept, 2)
    assert said == f"DiagnosticError: {told}"


TVM_MESSAGE = """Traceback (most recent call last):
  1: tvm::relay::TypeSolver::Solve()
  0: bool tvm::relay::MatmulRel<tvm::relay::DenseAttrs>(tvm::runtime::Array<tvm::Type, void>)
  File "/build/tvm/src/relay/op/nn/nn.h", line 106
InternalError: Check failed: (static_cast<int>(tensor_b->shape.size()) == 2) is false: """


def test_a_tvm_backtrace_becomes_its_last_line_and_other_messages_are_kept():
    error = explain(RuntimeError(TVM_MESSAGE), "step")
    assert error.kind == "pass"
    check = "(static_cast<int>(tensor_b->shape.size()) == 2) is false"
    assert error.message == f"RuntimeError: InternalError: Check failed: {check}"
    assert error.where == "step, at nn.h:106 in TVM"
    assert "::" not in error.message.replace("std::", "")
    text = "error: [11:28:01] /build/tvm/include/packed_func.h:2080: InternalError: bad"
    assert explain(ValueError(text), "load").message == "ValueError: error: InternalError: bad"
    kept = {KeyError("x"): ": 'x'", ValueError(): "", ValueError("one\ntwo"): ": one\ntwo"}
    for raised, said in kept.items():
        assert explain(raised, "load").message == f"{type(raised).__name__}{said}"
    assert "memory" in explain(MemoryError(), "time").message
    assert "nested too deeply" in explain(RecursionError(), "step").message
    assert len(explain(ValueError("x" * 5000), "load").message) < 1100


def test_a_process_that_cannot_start_or_is_of_no_engine_is_an_error(client, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with refused("engine", "could not be started"):
        client.submit("count").result(LONG)
    monkeypatch.undo()
    assert client.call("count") == 1
    with refused("usage", hint="relay"):
        EngineClient("nnvm")


def test_a_file_that_was_replaced_needs_another_sandbox(tmp_path, monkeypatch):
    """A sandbox allows a file, and not its name: raw PermissionErrors came of that."""
    model, granted = tmp_path / "model.pt", tmp_path / "granted"
    model.write_text("a")
    wants = Wants(files=frozenset({str(model)}))
    process = EngineProcess.__new__(EngineProcess)
    process.wants, process.readable = wants, process_of_engine._identities(wants.files)
    model.write_text("b")
    assert process.serves(wants)
    (tmp_path / "new.pt").write_text("c")
    (tmp_path / "new.pt").rename(model)
    assert not process.serves(wants)

    monkeypatch.setenv("RELASCOPE_READABLE", str(granted))
    sources = [ModelSource(str(path / "model.pt"), digest="a") for path in (tmp_path, granted)]
    assert Wants().with_("load", sources).files == {str(model)}


def test_our_own_types_and_errors_arrive_equal_and_what_is_shared_stays_shared():
    shape = TensorType((2, "n"), "float32")
    node = Node("a", Kind.CALL, "add", attrs={"x": [1, None]}, inputs=(Literal("1"),))
    body = Graph("f", "relay", (node,), (), ("a",))
    value = {"split": SplitResult(body, body, 1.5), "pipeline": Pipeline.parse("cse|-fold")}
    value |= {"plain": (shape, [b"x", {1.0, "s"}, frozenset((3,)), 1 << 80, True, None])}
    read = wire.loads(wire.dumps(value))
    assert read == value
    assert read["split"].forward is read["split"].backward
    assert read["split"].forward.nodes[0].kind is Kind.CALL
    told = EngineError("pass", "no", "here", "try").to_json()
    assert wire.loads(wire.dumps(EngineError(**told))).to_json() == told


class Reduced:
    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


GRAPH = _global("relascope.core.graph", "Graph")
HOSTILE = {
    "a system's function": pickle.dumps(Reduced(print, ("ran",))),
    "eval": pickle.dumps(Reduced(eval, ("1",))),
    "getattr": pickle.dumps(Reduced(getattr, (1, "real"))),
    "an import of a module of ours": _global("relascope.engine.client", "EngineClient") + b".",
    "what a module of ours imports": _global("relascope.core.graph", "field") + b".",
    "a function of a module of ours": _global("relascope.core.graph", "replace") + b".",
    "an attribute of a type": b"\x80\x04\x8c\x14relascope.core.graph\x8c\x0bGraph.named\x93.",
    "a new object without its fields": GRAPH + b")\x81.",
    "state of a word": _global("relascope.core.graph", "Kind") + b"(Vcall\ntR}V_value_\nVx\nsb.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_else_is_read(name, capsys):
    with pytest.raises((pickle.UnpicklingError, TypeError)):
        wire.loads(HOSTILE[name])
    assert capsys.readouterr().out == ""
    assert Kind.CALL.value == "call"


def test_a_type_cannot_be_changed():
    wire.loads(GRAPH + b"(N}V__eq__\nVno\nstb.")  # sets an attribute of what stands for the type
    assert callable(Graph.__eq__)
