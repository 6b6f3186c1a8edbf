"""An engine without a TVM, for tests of the page and the command line: small, quick, predictable.

It answers like the real one: a two-layer network whose pipeline folds a transpose, and whose joint
graph has three crossings. Some arguments make it fail or take its time, as said below.
"""

from __future__ import annotations

import time
from dataclasses import replace

from fake_tuning import FakeTuning
from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind, Node, Role, TensorType
from relascope.engine.protocol.accuracy import Comparison, NodeError
from relascope.engine.protocol.artefact import Artefact, KernelCode
from relascope.engine.protocol.profile import Kernel, Output, Peaks, Phase, Profile
from relascope.engine.protocol.results import (
    ImportChange,
    ModelInfo,
    ModuleRow,
    NamedModel,
    PassExample,
    SplitResult,
    StepRecord,
)
from relascope.engine.protocol.targets import EngineInfo, Target
from relascope.engine.protocol.times import CompileTimes, TimeResult, TimeRow, TorchSaved

SLOW_REPEATS = 777  # `time` with so many repeats takes a minute
BROKEN_SEED = 13  # `load` with this seed fails
RELAX_SEED = 15  # the import with this seed fails in Relax alone
NO_PARTITION_SEED = 16  # with it, PyTorch's partitioner does not take the module
WRONG_SEED = 15  # with it, gradients are wrong from the relu on
SLOW_SEED = 17  # with it, passes take long
FAILING_PASS = "simplify_inference"  # fails with this seed:
FAILING_SEED = 14


def tensor(*shape: int) -> TensorType:
    """A float32 type."""
    return TensorType(shape, "float32")


def forward_nodes(transposed: bool = True) -> list[Node]:
    """x @ w0.T, relu, @ w1.T."""
    nodes = [
        Node("x", Kind.INPUT, name="x", outputs=(tensor(8, 16),)),
        Node("w0", Kind.PARAMETER, name="layers.0.weight", outputs=(tensor(32, 16),)),
        Node("w1", Kind.PARAMETER, name="layers.2.weight", outputs=(tensor(4, 32),)),
    ]
    weight = "w0"
    if transposed:
        nodes.append(
            Node(
                "t0",
                Kind.CALL,
                "transpose",
                inputs=("w0",),
                outputs=(tensor(16, 32),),
                scope="layers.0",
                source="aten::t",
            )
        )
        weight = "t0"
    return [
        *nodes,
        Node(
            "d0",
            Kind.CALL,
            "nn.dense",
            inputs=("x", weight),
            outputs=(tensor(8, 32),),
            scope="layers.0",
            source="aten::linear",
        ),
        Node(
            "r",
            Kind.CALL,
            "nn.relu",
            inputs=("d0",),
            outputs=(tensor(8, 32),),
            scope="layers.1",
            source="aten::relu",
        ),
        Node(
            "d1",
            Kind.CALL,
            "nn.dense",
            inputs=("r", "w1"),
            outputs=(tensor(8, 4),),
            scope="layers.2",
            source="aten::linear",
        ),
    ]


def forward_graph(transposed: bool = True) -> Graph:
    """The model's graph."""
    return Graph("main", "relay", tuple(forward_nodes(transposed)), ("x", "w0", "w1"), ("d1",))


def joint_graph() -> Graph:
    """Forward, and the gradients of both weights."""
    forward, captured = Role.FORWARD, Role.CAPTURED
    roles = {"d0": captured, "r": captured, "d1": forward}
    nodes = [replace(n, role=roles.get(n.id, Role.NONE)) for n in forward_nodes(False)]
    nodes += [
        Node("g", Kind.INPUT, name="grad_out", outputs=(tensor(8, 4),)),
        Node(
            "gr",
            Kind.CALL,
            "nn.matmul",
            inputs=("g", "w1"),
            outputs=(tensor(8, 32),),
            role=Role.BACKWARD,
            scope="layers.2",
        ),
        Node(
            "m",
            Kind.CALL,
            "greater",
            inputs=("d0",),
            outputs=(tensor(8, 32),),
            role=Role.BACKWARD,
            scope="layers.1",
        ),
        Node(
            "gd",
            Kind.CALL,
            "multiply",
            inputs=("gr", "m"),
            outputs=(tensor(8, 32),),
            role=Role.BACKWARD,
            scope="layers.1",
        ),
        Node(
            "gw1",
            Kind.CALL,
            "nn.matmul",
            inputs=("g", "r"),
            outputs=(tensor(4, 32),),
            role=Role.BACKWARD,
            scope="layers.2",
        ),
        Node(
            "gw0",
            Kind.CALL,
            "nn.matmul",
            inputs=("gd", "x"),
            outputs=(tensor(32, 16),),
            role=Role.BACKWARD,
            scope="layers.0",
        ),
    ]
    return Graph(
        "main",
        "relay",
        tuple(nodes),
        ("x", "w0", "w1", "g"),
        ("d1", "gw0", "gw1"),
        forward_outputs=1,
    )


class PageSession(FakeTuning):
    """See the module."""

    ir = "relay"

    def describe(self, *, progress):
        return EngineInfo(
            "relay",
            "0.0.test",
            "nowhere",
            (
                Target("llvm", "the CPU of the test", True),
                Target("llvm -libs=mkl", "the CPU of the test, with a library", True),
                Target("cuda", "a GPU", False, "this machine has no GPU"),
            ),
        )

    def models(self, pattern, counted=True, *, progress):
        names = ("hf:bert", "hf:distilbert", "torchvision:resnet18")
        rows = (NamedModel(n, "Net", 1234 if counted else None, False) for n in names)
        return tuple(r for r in rows if pattern in ("*", r.name))

    def load(self, source, *, progress):
        if source.seed == BROKEN_SEED:
            raise EngineError(
                "operator",
                "Relay knows no operator aten::frobnicate.",
                "encoder.layer.0",
                "Take this module out.",
            )
        if "not_a_trace" in source.model:
            raise EngineError("file", "This is no TorchScript file.", source.model, "Trace it.")
        graph = forward_graph()
        arguments = tuple((graph.by_id[i].name, graph.by_id[i].outputs[0]) for i in graph.inputs)
        progress(0.5, "importing")
        notes = ("A note of the import.",)
        if source.module:
            notes = (f"What the whole gives it: {source.module}, call {source.call}.",)
        change = ImportChange("dropped", "Left out", "aten::dropout", 1, (), ("layers.1.drop",))
        about = source, graph, 640, arguments, 1, 0.012, notes
        return ModelInfo(*about, 2 if source.module else 1, (change,))

    def modules(self, source, *, progress):
        rows = (("", "Net", 16, 4), ("layers.0", "Linear", 16, 32), ("layers.1", "ReLU", 32, 32))
        return tuple(
            ModuleRow(path, kind, 640, 1, (tensor(8, width),), (tensor(8, out),), 0.001)
            for path, kind, width, out in rows
        )

    def step(self, source, pipeline, runs=1, *, progress):
        records, before = [], self._graph(source, pipeline, -1)
        for index, one in enumerate(pipeline):
            after = self._graph(source, pipeline, index)
            error, printed = None, ""
            if one.enabled and one.name == FAILING_PASS and source.seed == FAILING_SEED:
                printed = "looked at the shape\n"
                error = EngineError("pass", "The pass met a shape it cannot take.", one.name)
            added = len(set(after.by_id) - set(before.by_id))
            removed = len(set(before.by_id) - set(after.by_id))
            records.append(
                StepRecord(
                    one.name,
                    one.enabled,
                    1 if removed else 0,
                    added,
                    removed,
                    len(after),
                    0.002 if one.enabled else 0.0,
                    after.operators,
                    error,
                    printed,
                )
            )
            before = after
        return tuple(records)

    def graph_after(self, source, pipeline, index, built=False, *, progress):
        return self._graph(source, pipeline, index)

    def example(self, name, *, progress):
        if name != "fold":
            return None
        before, after = forward_graph(True), forward_graph(False)
        types = (("x", tensor(2, 3)),)
        return PassExample("fold", types, "transpose(w)", "w", before, after, "It only says so.")

    def text(self, source, pipeline, index, *, progress):
        nodes = self._graph(source, pipeline, index).nodes
        return "".join(f"  %{i} = {n.op or n.name};\n" for i, n in enumerate(nodes))

    def _graph(self, source, pipeline, index):
        names = [s.name for s in pipeline.steps[: index + 1] if s.enabled]
        if "gradient" in names or source.gradient == "pytorch":
            return joint_graph()
        return forward_graph("fold" not in names)

    def split(self, source, pipeline, captures, *, progress):
        joint = joint_graph()
        forward = Graph("forward", "relay", joint.nodes[:6], joint.inputs[:3], ("d1", *captures))
        saved = tuple(Node(i, Kind.INPUT, name=i, outputs=joint.by_id[i].outputs) for i in captures)
        own = tuple(n for n in joint.nodes if n.id in ("x", "w1", "g") or n.role is Role.BACKWARD)
        missing = {s for n in own for s in n.edges} - {n.id for n in (*own, *saved)}
        again = tuple(n for n in joint.nodes if n.id in joint.ancestors(missing) if missing)
        nodes = {n.id: n for n in (*again, *saved, *own)}
        backward = Graph(
            "backward",
            "relay",
            tuple(nodes.values()),
            tuple(n.id for n in nodes.values() if n.kind is not Kind.CALL),
            ("gw0", "gw1"),
        )
        return SplitResult(forward, backward, 0.01)

    def check(self, request, captures=False, *, progress):
        source, pipeline = request.source, request.pipeline
        joint = self._graph(source, pipeline, len(pipeline) - 1).forward_outputs is not None
        names = ["output 0"] + (["gradient of layers.0.weight"] if joint else [])
        names += [f"capture {i}" for i in request.captures if captures]
        error = 2e-6 if source.dtype == "float32" else 2e-15
        if source.seed == WRONG_SEED and names[1:]:
            error = 0.5
        return tuple(Comparison(n, error / 2, error, 0.5, source.dtype) for n in names)

    def inside(self, request, *, progress):
        return (
            NodeError("d0", 1e-16, 1e-16, "aten::linear in layers.0"),
            NodeError("r", 0.25, 0.5, "aten::relu in layers.1"),
        )

    def kernels(self, source, pipeline, whole=False, *, progress):
        return None

    def compile_times(self, request, rounds, seconds, *, progress):
        """Ten times as long with SLOW_SEED."""
        taken = 0.1 if request.source.seed == SLOW_SEED else 0.01
        on = (i for i, s in enumerate(request.pipeline) if s.enabled)
        passes = tuple((i, (taken, 2 * taken)) for i in on)
        return CompileTimes(passes, (0.2, 0.3), (0.004, 0.005), 4096)

    def torch_saved(self, source, *, progress):
        if source.seed == NO_PARTITION_SEED:
            return TorchSaved(2048, None, "PyTorch's partitioner does not take this module: no.")
        return TorchSaved(2048, 1024)

    def target(self, text, *, progress):
        if text == "nonsense":
            raise EngineError("target", "There is no target nonsense.", text, "Write another.")
        known = {t.name: t for t in self.describe(progress=progress).targets}
        return known.get(text) or Target(text, "a device of yours", False, "It is elsewhere.")

    def compile(self, request, folder="", *, progress):
        """A kernel of each phase; half of them without a size."""
        found = self.target(request.target, progress=progress)
        code = (("CUDA", "__global__ void dense() {\n  fma();\n}"), ("PTX", "fma.rn.f32;"))
        kernels = [KernelCode("dense", "forward", 2048, code)]
        if request.split:
            kernels.append(KernelCode("dense", "backward", None, code[:1]))
        notes = () if found.runs_here else (f"It cannot be timed here. {found.missing}",)
        files = ("forward.tar",) if folder else ()
        return Artefact(found, tuple(kernels), 8192, 0.5, notes, files)

    def time(self, request, baselines=(), variants=(), *, progress):
        if request.repeats == SLOW_REPEATS:
            for i in range(600):
                progress(i / 600, "timing slowly")
                time.sleep(0.1)
        phases = ["forward"] + (["forward_backward"] if request.split else [])
        rows = []
        for phase in phases:
            rows.append(
                TimeRow("pytorch eager", phase, 1.0, 0.9, 1.1, None, None, None, (0.9, 1.0, 1.1))
            )
            rows.append(
                TimeRow(
                    "relay, cpu",
                    phase,
                    1.32,
                    1.3,
                    1.4,
                    1.32,
                    3e-6,
                    4096,
                    (1.3, 1.32, 1.4),
                    ratio_of_minima=1.44,
                    build_seconds=0.5,
                    target=request.target,
                    capture_bytes=2048,
                )
            )
            rows += [
                TimeRow(
                    f"relay, {one.name}",
                    phase,
                    0.66,
                    0.6,
                    0.7,
                    0.66,
                    1e-5,
                    512,
                    (0.6, 0.66, 0.7),
                    ratio_of_minima=0.67,
                    build_seconds=0.25,
                    target=one.request.target,
                )
                for one in variants
            ]
            rows += [
                TimeRow(name, phase, 0.8, 0.7, 0.9, 0.8, 1e-6, None, (0.7, 0.8, 0.9), 1.65)
                for name in baselines
            ]
        comparisons = self.check(request, progress=progress)
        return TimeResult(
            "a test machine",
            request.target,
            request.threads or 2,
            tuple(rows),
            comparisons,
            0.5,
            ("Another program keeps the machine busy.",),
        )

    def profile(self, request, *, progress):
        """The product takes most of the time, and the last kernel puts out NaN."""
        out = Output((8, 32), "float32", -1.0, 2.0, 0.5, 0, 0)
        bad = Output((8, 4), "float32", -1.0, 2.0, 0.5, 3, 0)
        kernels = (
            Kernel("fused_add", "forward", (), 0.02, 0.02, 64, 1024, (out,)),
            Kernel("dense", "forward", ("d0",), 0.8, 0.8, 4096, 1024, (out,), 8192.0, 0, 2048),
            Kernel(
                "fused_relu_dense",
                "forward",
                ("r", "d1"),
                0.08,
                0.08,
                1024,
                128,
                (bad,),
                2304.0,
                0,
                512,
            ),
        )
        phases = (Phase("forward", 1.0, 0.9, 0.02, 4096, 2048, 1024),)
        comparisons = self.check(request, progress=progress)
        peaks = self.peaks(request.target, request.threads, ("float32",), progress=progress)
        return Profile(
            "a test machine",
            request.target,
            request.threads or 2,
            request.repeats,
            kernels,
            phases,
            comparisons,
            0.5,
            ("A note of the profile.",),
            peaks,
            8192,
        )

    def peaks(self, target, threads, dtypes, turn=0, *, progress):
        """Twice as quick when they are measured again."""
        return Peaks(
            "a test machine",
            threads or 2,
            (("float32", 2e7 * (1 + turn)),),
            ((2**18, 4e7), (2**28, 1e7)),
            0.5,
        )


def relax_graph() -> Graph:
    """The same model in Relax's words."""
    nodes = [
        *forward_nodes(False)[:3],
        Node(
            "p0",
            Kind.CALL,
            "permute_dims",
            inputs=("w0",),
            outputs=(tensor(16, 32),),
            scope="layers.0",
            source="aten::linear",
        ),
        Node(
            "m0",
            Kind.CALL,
            "matmul",
            inputs=("x", "p0"),
            outputs=(tensor(8, 32),),
            scope="layers.0",
            source="aten::linear",
        ),
        Node(
            "a",
            Kind.CALL,
            "nn.relu",
            inputs=("m0",),
            outputs=(tensor(8, 32),),
            scope="layers.1",
            source="aten::relu",
        ),
        Node(
            "p1",
            Kind.CALL,
            "permute_dims",
            inputs=("w1",),
            outputs=(tensor(32, 4),),
            scope="layers.2",
            source="aten::linear",
        ),
        Node(
            "m1",
            Kind.CALL,
            "matmul",
            inputs=("a", "p1"),
            outputs=(tensor(8, 4),),
            scope="layers.2",
            source="aten::linear",
        ),
    ]
    return Graph("main", "relax", tuple(nodes), ("x", "w0", "w1"), ("m1",))


class RelaxPageSession(PageSession):
    """The same in Relax; the import fails for one seed here alone."""

    ir = "relax"

    def describe(self, *, progress):
        return replace(super().describe(progress=progress), ir="relax")

    def load(self, source, *, progress):
        self._import(source)
        return replace(super().load(source, progress=progress), graph=relax_graph())

    def _import(self, source):
        if source.seed == RELAX_SEED:
            raise EngineError(
                "operator", "Relax knows no operator aten::frobnicate.", "layers.1", "Use Relay."
            )

    def _graph(self, source, pipeline, index):
        self._import(source)
        joint = super()._graph(source, pipeline, index)
        return relax_graph() if joint.forward_outputs is None else joint


SESSIONS = {"relay": "PageSession", "relax": "RelaxPageSession"}


def session_of(ir: str) -> str:
    """The session that stands in for an engine."""
    return f"page_session:{SESSIONS[ir]}"
