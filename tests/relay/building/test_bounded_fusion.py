"""Long expressions end where FuseOps would put them into their readers."""

import tvm
from tvm import relay

from relascope.engine.relay.building.bounded_fusion import bounded
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order


def doubled(times):
    """A sum of each sum with itself: `2**times` terms where it is one expression."""
    x = value = relay.var("x", shape=(4,))
    for _ in range(times):
        value = relay.add(value, relay.negative(value))
    mod = tvm.IRModule.from_expr(relay.Function([x], value))
    return RelayProgram(relay.transform.InferType()(mod), {}, (), 1)


def ends(program):
    return [op_name(e) for e in post_order(program.main)].count("annotation.stop_fusion")


def test_what_is_short_stays_as_it_is():
    program = doubled(5)
    assert bounded(program) is program


def test_what_doubles_ends_now_and_then():
    program = bounded(doubled(30))
    assert 2 <= ends(program) <= 6
    assert program.main.checked_type == doubled(30).main.checked_type
