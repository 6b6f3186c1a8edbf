"""A gate names the regressions that are planted in a compile, in the engine whose TVM is here.

Each is a pass file that takes the place of a sound one: the pipeline and its pass `own` are called
the same, so nothing but what they do tells them apart."""

import sys

import pytest
import tvm

from answers import asking
from quick import ENGINE, QUICK, rare
from relascope.engine.jobs import baseline
from relascope.engine.protocol.source import ModelSource
from relascope.passes import catalogue
from relascope.passes.catalogue import default_pipeline, read_pipeline, user
from relascope.viz.rows.gate.baseline import compare

HEAD = {
    "relay": """
IR = "relay"
import time
import tvm
from tvm import relay
from relascope.passes.relay.ir.rewrite import op_name, rewrite

add, cast, const, multiply = relay.add, relay.cast, relay.const, relay.multiply

def twice_turned(x):
    return relay.transpose(relay.transpose(x))

def again(call, x):
    return relay.Call(call.op, [x, call.args[1]], call.attrs)

def wider(call):
    wide = again(call, relay.tile(call.args[0], (64, 1)))
    return relay.strided_slice(wide, [0], [8], axes=[0])

def first(program, make):
    done = []
    def visit(call, args):
        if op_name(call) == "nn.dense" and not done:
            done.append(call)
            return make(relay.Call(call.op, args, call.attrs), call.checked_type.dtype)
        return None
    return rewrite(program, visit)
""",
    "relax": """
IR = "relax"
import time
import tvm
from tvm import relax
from relascope.passes.relax.ir.rewrite import dtype, op_name, rewrite

add, cast, const, multiply = relax.op.add, relax.op.astype, relax.const, relax.op.multiply

def twice_turned(x):
    return relax.op.permute_dims(relax.op.permute_dims(x))

def again(call, x):
    return relax.op.matmul(x, call.args[1])

def wider(call):
    wide = again(call, relax.op.tile(call.args[0], [64, 1]))
    return relax.op.strided_slice(wide, [0], [0], [8])

def first(program, make):
    done = []
    def rule(call, maker):
        if op_name(call) == "matmul" and not done:
            done.append(call)
            return make(call, dtype(call))
        return None
    return rewrite(program, rule)
""",
}
SOUND = "def own(program):\n    return program\n"
FUSION_LOST = """
def own(program):
    tvm.transform.PassContext(config={f"{IR}.FuseOps.max_depth": 1}).__enter__()
    return program
"""
SLOWER = """
def own(program):
    end = time.perf_counter() + 0.06
    while time.perf_counter() < end:
        pass
    return program
"""
OF_PRODUCT = "def own(program):\n    return first(program, lambda call, kind: {})\n"
CAST = OF_PRODUCT.format('cast(cast(call, "float64"), kind)')
TURNED = OF_PRODUCT.format("twice_turned(call)")
OFF = OF_PRODUCT.format("multiply(call, const(1.001, kind))")
HALF = "multiply({}, const(0.5, kind))"
TWICE = OF_PRODUCT.format(f"add(again(call, {HALF}), {HALF})").format("call.args[0]", "call")
HELD = OF_PRODUCT.format("wider(call)")
CAST_OF, TURN = {"relay": ("cast", "transpose"), "relax": ("astype", "permute_dims")}[ENGINE]
# The kind of the difference that must name it, and words that its sentence must have.
PLANTED = {
    FUSION_LOST: ("fusion", "is no longer fused with"),
    CAST: ("operators", f"2 `{CAST_OF}` more in hidden"),
    TURNED: ("operators", f"2 `{TURN}` more in hidden"),
    SLOWER: ("compile", "the pass `own` takes"),
    OFF: ("wrong", "over the limit in float64"),
    TWICE: ("flops", "instead of"),
    HELD: ("memory", "what is built takes"),
}
FIRST = {}
FEW = (FUSION_LOST, CAST)[: 1 if ENGINE == "relay" else 2]


@pytest.fixture
def taken(session, tmp_path, monkeypatch):
    """One engine, asked anew each time, so that nothing of an earlier compile is remembered."""
    monkeypatch.setenv(user.VARIABLE, "")
    monkeypatch.setattr(catalogue, "CATALOGUE", dict(catalogue.CATALOGUE))

    def take(planted):
        for module in [m for m in sys.modules if m.endswith("own.py")]:
            del sys.modules[module]
        (tmp_path / "own.py").write_text(HEAD[ENGINE] + planted)
        user.name_files([str(tmp_path / "own.py")])
        pipeline = read_pipeline(ENGINE, f"{default_pipeline(ENGINE, False)}|own")
        about = ModelSource("mlp"), pipeline, QUICK
        try:
            return baseline.take(asking(type(session)()), ENGINE, *about, rounds=2)
        finally:
            while (context := tvm.transform.PassContext.current()).config:
                context.__exit__(None, None, None)  # which a pass has entered

    return take


@pytest.fixture
def sound(taken):
    return FIRST.get(SOUND) or FIRST.setdefault(SOUND, taken(SOUND))


def test_twice_is_no_difference(sound, taken):
    differences = compare(sound, taken(SOUND)).differences
    assert [d for d in differences if d.kind not in ("compile", "speed")] == []


@pytest.mark.parametrize("planted", [p if p in FEW else rare(p) for p in PLANTED])
def test_a_planted_regression_is_named(sound, taken, planted):
    kind, words = PLANTED[planted]
    result = compare(sound, taken(planted))
    assert any(words in d.sentence for d in result.failing() if d.kind == kind), result
