"""What code in an engine's process can reach: its own folder, and what it was asked to open."""

import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from answers import answer, ran, refused
from quick import rare
from relascope.core.place import IMPORT_ROOT
from relascope.engine import sandbox
from relascope.engine.client import EngineClient
from relascope.engine.process import Wants
from relascope.engine.protocol import records
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import EVERYTHING, ModelSource, weights_beside
from relascope.passes.catalogue.recorded import recorded
from relascope.passes.pipeline import Pipeline

SESSION = "relax", "opening_session:OpeningSession"
UNSHARE, LANDLOCK = {"x86_64": (272, 444), "aarch64": (97, 444)}[os.uname().machine]


@pytest.fixture
def outside(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv(records.VARIABLE, str(tmp_path / "records"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    names = {"home": home, "tmp": tmp_path / "tmp", "records": tmp_path / "records"}
    for folder in names.values():
        folder.mkdir()
    (home / "victim").write_text("mine")
    # Its own Python, not the test's home, has to be read.
    return {**names, "checkout": IMPORT_ROOT, "/dev/shm": "/dev/shm", "/tmp": "/tmp"}


def unchanged(path, before):
    after = path.stat()
    return (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)


@pytest.fixture
def reach(outside):
    victim = outside["home"] / "victim"
    before = victim.stat()

    def ask(client):
        with (
            EngineClient(*SESSION) as another,
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.socket(socket.AF_UNIX) as program,
        ):
            another.call("describe")
            theirs = another._supervisor.process.folder.name
            path = str(outside["tmp"] / f"program-{os.urandom(4).hex()}")
            program.bind(path)
            program.listen()
            folders = {n: str(f) for n, f in {**outside, "another's folder": theirs}.items()}
            about = folders, str(victim), path, server.getsockname()[1]
            done = set(client.call("reach", *about))
            left = {n for n, f in folders.items() if Path(f, "canary").exists()}
        assert victim.read_text() == "mine" and unchanged(victim, before)
        assert not os.listxattr(victim)
        assert str(0x5EED) not in Path("/proc/sysvipc/shm").read_text().split()
        return done, left

    return ask


OWN = {"list records", "list checkout", "write /dev/shm", "list /dev/shm", "System V's memory"}
"""What belongs to the environment, or is a process's own and goes with it."""


def test_nothing_is_reached_from_an_engine(reach):
    with EngineClient(*SESSION) as client:
        done, left = reach(client)
        assert (done - OWN, left) == (set(), set())


def test_an_engine_reads_what_it_is_to_open(tmp_path):
    mine, other = tmp_path / "mine.npy", tmp_path / "other.npy"
    for path in (mine, other):
        path.write_bytes(b"data")
    source = ModelSource("mlp", tensors=((str(mine), ""),))
    with EngineClient(*SESSION) as client:
        assert client.call("readable", [str(mine), str(other)], source) == (str(mine),)
        # Another file is another process's; the first is not forgotten.
        source = ModelSource(str(other), digest="0")
        assert client.call("readable", [str(mine), str(other)], source) == (str(mine), str(other))


def test_which_files_a_process_is_to_read():
    own, strange = ModelSource("python:/a.py:model"), ModelSource("/b.pt", digest="0")
    wants = Wants().with_("load", (own,))
    for one in (wants, wants.with_("step", (own, "fold")), wants.with_("describe", ())):
        assert one.files == {EVERYTHING}
    assert wants.with_("load", (strange,)).files == {"/b.pt"}
    assert wants.with_("load", (strange,)).with_("load", (own,)).files == {EVERYTHING}
    first = ModelSource("/run/module_0.json", digest="0")
    steps = recorded(1, 4, "ReluAway"), recorded(7, 9, "FuseOps")
    for given in ((first, Pipeline(steps)), (BuildRequest(first, Pipeline(steps), "llvm"),)):
        files = {f"/run/module_{n}.json" for n in (0, 1, 7)}
        assert Wants().with_("step", given).files == files
    assert not Wants().with_("step", (ModelSource("mlp"), Pipeline(steps))).files


def test_the_files_beside_an_onnx_model_that_it_names(tmp_path):
    def named(text):
        return b"\x0a\x08location\x12" + bytes([len(text)]) + text

    places = (b"weights.bin", b"missing", b"../out", b"inner/more.bin", b"link")
    model = tmp_path / "in" / "model.onnx"
    (model.parent / "inner").mkdir(parents=True)
    for path in ("in/weights.bin", "in/inner/more.bin", "in/other.bin", "out"):
        (tmp_path / path).write_bytes(b"data")
    (model.parent / "link").symlink_to(tmp_path / "out")
    model.write_bytes(b"\x08\x07" + b"".join(map(named, places)))
    found = weights_beside(str(model), 0)
    names = {str(Path(f).relative_to(tmp_path)) for f in found}
    assert names == {"in/weights.bin", "in/inner/more.bin"}


IN_ANOTHER = """
import json
from relascope.core.errors import EngineError
from relascope.engine import sandbox
from relascope.engine.client import EngineClient
calls, session, method, *arguments = about
assert not calls or sandbox.refuse_calls(calls)
with EngineClient(*session) as client:
    try:
        found = client.call(method, *arguments)
    except EngineError as error:
        found = error.message
    print(json.dumps([client.call("describe").sandbox, found], default=str))
"""


def without(calls, method, *arguments, **variables):
    """What an engine says where the kernel refuses system calls, as containers have it do."""
    variables["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return answer(f"about = {[calls, SESSION, method, *arguments]!r}{IN_ANOTHER}", **variables)


def test_where_namespaces_are_refused(outside):
    victim = outside["home"] / "victim"
    before = victim.stat()
    folders = {n: str(f) for n, f in outside.items()}
    restricted, done = without([UNSHARE], "reach", folders, str(victim), "/none", 1)
    assert {sandbox.READS, sandbox.WRITES} < set(restricted)
    assert not {"no network", "its own /dev/shm"} & set(restricted)
    assert set(done) - OWN == set() and unchanged(victim, before)


@pytest.mark.parametrize(
    ("calls", "variables", "why"),
    [
        ([], {sandbox.SETTING: "off"}, "RELASCOPE_SANDBOX=off"),
        rare([], {"RELASCOPE_ROOM": "off"}, "RELASCOPE_SANDBOX=off"),
        rare([LANDLOCK], {}, "Landlock"),
        ([UNSHARE, LANDLOCK], {}, "Landlock"),
    ],
)
def test_a_file_is_refused_without_a_sandbox(calls, variables, why, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"anything")
    _, found = without(calls, "tensors", str(path), **variables)
    assert "is not opened" in found and why in found
    if len(calls) == 2:
        _, found = without(calls, "tensors", str(path), **{sandbox.TRUST: "1"})
        assert "cannot be opened" in found or "is not opened" not in found


def test_nothing_is_required_where_there_is_no_engine(monkeypatch):
    sandbox.require("model.pt")
    monkeypatch.setenv("RELASCOPE_SANDBOX_ACTIVE", "no network")
    with refused(hint="--trust-files"):
        sandbox.require("model.pt")


SOCKETS = """
import socket
from relascope.engine import sandbox
sandbox._has_nvidia = lambda: {nvidia}
sandbox.refuse_calls([], {number})
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    try:
        socket.socket(socket.AF_UNIX, kind).close()
        print(kind.name)
    except PermissionError:
        pass
socket.socket(socket.AF_INET).close()
"""


@pytest.mark.parametrize(("nvidia", "allowed"), [(True, "SOCK_SEQPACKET\n"), (False, "")])
def test_sockets_with_which_cuda_starts(nvidia, allowed):
    number = sandbox._CALLS[os.uname().machine]["socket"]
    assert ran(sys.executable, "-c", SOCKETS.format(nvidia=nvidia, number=number)).stdout == allowed


def test_files_are_temporary_in_its_own_folder_whatever_is_imported_first(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import tempfile; tempfile.gettempdir()")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    with EngineClient(*SESSION) as client:
        client.call("describe")
        own = client._supervisor.process.folder.name
        assert client.call("temporary") == (own, own, f"{own}/cache")
