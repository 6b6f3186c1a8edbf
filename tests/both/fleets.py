"""What both engines do on a fleet; each runs it in a process of its own."""

import socket
import threading

import pytest

from answers import quiet, refused
from fleet import KEY, LocalFleet, free_port
from limits import GRADIENT, LIMITS, OUTPUT
from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.measure import fleet as fleets
from relascope.engine.measure.fleet import check, connected
from relascope.engine.protocol import records
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.tuning import RECORDS, Fleet
from relascope.passes.catalogue import default_pipeline
from relascope.passes.cuts.cut import cut

PLAIN = "llvm"
SOURCE = ModelSource("mlp", batch=2)


class FleetTests:
    ir: str
    other: str
    library: str

    @pytest.fixture(scope="class")
    @classmethod
    def fleet(cls):
        with LocalFleet(cls.ir) as found:
            yield found

    @pytest.mark.parametrize(
        "dtype", [pytest.param("float32", marks=pytest.mark.exhaustive), "float64"]
    )
    def test_a_program_is_timed_there_and_compared_here(self, session, fleet, dtype):
        source = ModelSource("mlp", batch=2, dtype=dtype)
        pipeline = default_pipeline(self.ir, False)
        found = session.time_remote(
            BuildRequest(source, pipeline, PLAIN, 1, 3), fleet, progress=quiet
        )
        (row,) = found.rows
        assert row.what == f"{self.ir}, {PLAIN} on {KEY}"
        assert row.phase == "forward"
        assert len(row.samples_ms) == 3
        assert 0 < row.median_ms < 1000
        assert row.ratio_to_eager is None
        assert row.max_abs_error < LIMITS[dtype][0]
        assert found.threads == 1
        assert "PyTorch does not run beside it" in found.notes[0]

    def test_training_is_two_functions_there(self, session, fleet):
        source = ModelSource("mlp", batch=2, training=True)
        pipeline = default_pipeline(self.ir, True)
        joint = session.graph_after(source, pipeline, len(pipeline) - 1, progress=quiet)
        captures = cut(joint, "keep_all").ids
        found = session.time_remote(
            BuildRequest(source, pipeline, PLAIN, 1, 3).split_at(captures), fleet, progress=quiet
        )
        forward, both = found.rows
        assert (forward.phase, both.phase) == ("forward", "forward_backward")
        assert both.median_ms > forward.median_ms
        assert both.max_abs_error < GRADIENT
        assert any(c.name.startswith("gradient") for c in found.comparisons)

    def test_kernels_are_tuned_there_and_built_with_for_there_alone(self, session, fleet):
        pipeline = default_pipeline(self.ir, False)
        tasks = session.tasks(BuildRequest(SOURCE, pipeline, PLAIN, 1), fleet, progress=quiet)
        key = max(tasks, key=lambda t: t.flops or 0.0).key
        made = session.tune(
            BuildRequest(SOURCE, pipeline, PLAIN, 1), (key,), 4, fleet, progress=quiet
        )
        (tuned,) = made.tasks
        assert tuned.trials == 4
        assert tuned.best_ms is not None
        assert tuned.before_ms is not None
        version = session.describe(progress=quiet).version
        there = records.read(records.folder(self.ir, version, PLAIN, 1, fleet))
        assert len(there.of(key)) == 4
        assert not records.read(records.folder(self.ir, version, PLAIN, 1)).of(key)
        target = f"{PLAIN} {RECORDS}"
        found = session.time_remote(
            BuildRequest(SOURCE, pipeline, target, 1, 3), fleet, progress=quiet
        )
        assert found.rows[0].max_abs_error < OUTPUT

    def test_pytorchs_library_is_not_there(self, session, fleet):
        pipeline = default_pipeline(self.ir, False)
        target = f"{PLAIN} {self.library}"
        with refused(match="has no PyTorch", hint=self.library):
            session.time_remote(BuildRequest(SOURCE, pipeline, target, 1, 3), fleet, progress=quiet)
        with pytest.raises(EngineError, match="has no PyTorch"):
            session.tune(BuildRequest(SOURCE, pipeline, target, 1), (), 1, fleet, progress=quiet)

    @pytest.mark.exhaustive
    def test_the_other_engine_is_told_that_the_server_is_not_its_own(self, fleet):
        pipeline = default_pipeline(self.other, False)
        told = refused(says="does not understand this TVM", hint="relascope.engine.serve")
        with EngineClient(self.other) as client, told:
            client.call("time_remote", BuildRequest(SOURCE, pipeline, PLAIN, 1, 3), fleet)

    def test_a_device_that_others_use_is_waited_for_and_no_longer(self, fleet):
        in_use = pytest.raises(EngineError, match="are in use")
        with connected(fleet, quiet), in_use, connected(fleet, quiet, 1.0):
            pass
        with connected(fleet, quiet):
            pass  # it was given back

    def test_a_key_that_nobody_has_names_those_there_are(self, fleet):
        with refused(match="No device has registered", hint=KEY):
            check(Fleet(fleet.tracker, "elsewhere"))

    def test_where_there_is_no_tracker_it_says_so_at_once(self):
        with refused(match="nothing listens there", hint="relascope.engine.serve"):
            check(Fleet(f"127.0.0.1:{free_port()}", KEY))

    def test_what_is_no_tracker_is_not_waited_for(self, monkeypatch):
        monkeypatch.setattr(fleets, "_ANSWER", 0.5)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with pytest.raises(EngineError, match="nothing answers"):
                check(Fleet(f"127.0.0.1:{port}", KEY))
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]

            def answer():
                connection, _ = other.accept()
                with connection:
                    connection.recv(4)
                    connection.sendall(b"HTTP")

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(EngineError, match="something else"):
                check(Fleet(f"127.0.0.1:{port}", KEY))
            thread.join(5)
