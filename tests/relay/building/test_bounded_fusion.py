"""Long expressions end where FuseOps would put them into their readers."""

import torch
import tvm
from torch.nn import functional as F
from tvm import relay

from relascope.engine.building.options import BuildOptions
from relascope.engine.relay.building import runtime
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


def test_what_doubles_ends_now_and_then_and_what_is_short_stays():
    program = doubled(5)
    assert bounded(program) is program
    program = bounded(doubled(30))
    assert 2 <= ends(program) <= 6
    assert program.main.checked_type == doubled(30).main.checked_type


def test_what_is_joined_with_itself_in_other_places_is_built():
    x = relay.var("x", shape=(3, 7, 128))
    double = relay.add(x, x)
    before = relay.nn.pad(relay.strided_slice(double, [0, 0], [3, 6]), ((0, 0), (1, 0), (0, 0)))
    after = relay.nn.pad(relay.strided_slice(double, [0, 1], [3, 7]), ((0, 0), (0, 1), (0, 0)))
    joined = relay.concatenate([after, double, before], 2)
    mod = tvm.IRModule.from_expr(relay.Function([x], joined))
    program = RelayProgram(relay.transform.InferType()(mod), {}, (), 1)
    assert ends(bounded(program)) == 1
    values = torch.randn(3, 7, 128)
    (found,) = runtime.build(program, BuildOptions("llvm")).run({"x": values})
    parts = [F.pad(values[:, 1:], (0, 0, 0, 1)), values, F.pad(values[:, :-1], (0, 0, 1, 0))]
    assert torch.equal(found, 2 * torch.cat(parts, 2))
