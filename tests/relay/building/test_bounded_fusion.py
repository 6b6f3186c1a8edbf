"""Long expressions end where FuseOps would put them into their readers."""

import torch
from torch.nn import functional as F
from tvm import relay

from relascope.engine.building.options import BuildOptions
from relascope.engine.relay.building import runtime
from relascope.engine.relay.building.bounded_fusion import bounded
from relay_functions import operators, program_of, var


def doubled(times):
    """A sum of each sum with itself: `2**times` terms where it is one expression."""
    value = var("x", 4)
    for _ in range(times):
        value = relay.add(value, relay.negative(value))
    return program_of(value)


def ends(program):
    return operators(program)["annotation.stop_fusion"]


def test_what_doubles_ends_now_and_then_and_what_is_short_stays():
    program = doubled(5)
    assert bounded(program) is program
    program = bounded(doubled(30))
    assert 2 <= ends(program) <= 6
    assert program.main.checked_type == doubled(30).main.checked_type


def test_what_is_joined_with_itself_in_other_places_is_built():
    x = var("x", 3, 7, 128)
    double = relay.add(x, x)
    before = relay.nn.pad(relay.strided_slice(double, [0, 0], [3, 6]), ((0, 0), (1, 0), (0, 0)))
    after = relay.nn.pad(relay.strided_slice(double, [0, 1], [3, 7]), ((0, 0), (0, 1), (0, 0)))
    program = program_of(relay.concatenate([after, double, before], 2))
    assert ends(bounded(program)) == 1
    values = torch.randn(3, 7, 128)
    (found,) = runtime.build(program, BuildOptions("llvm")).run({"x": values})
    parts = [F.pad(values[:, 1:], (0, 0, 0, 1)), values, F.pad(values[:, :-1], (0, 0, 1, 0))]
    assert torch.equal(found, 2 * torch.cat(parts, 2))
