"""What Relax's virtual machine holds in a call, and kernels that write over an argument."""

import re
from functools import partial
from unittest import mock

import pytest
import torch
import tvm
from tvm import relax, te
from tvm.relax import op

from limits import rounding
from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.jobs.cut import with_cut
from relascope.engine.measure.memory import torch_peak
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.relax.building import block_memory, runtime
from relascope.engine.relax.building.in_place import overwritable
from relascope.engine.relax.session import RelaxSession
from relascope.passes.catalogue import default_pipeline
from relax_modules import program

OURS = f"llvm {SCHEDULES}"


def test_a_backward_gives_up_what_nobody_else_has():
    session, source = RelaxSession(), ModelSource("mlp", training=True)
    pipeline, ask = default_pipeline("relax", True), partial(getattr, session)
    whole = BuildRequest(source, pipeline, OURS, 1, 2)
    request = with_cut(lambda name, *args: ask(name)(*args, progress=silent), whole)
    _, built = session.time.__self__.built(request, silent)

    def run(held):
        masks = built.masks(0)
        spent = {**masks, **built.forward(masks)[1]}
        others = dict(spent) if held else {}
        del masks
        return built.executable.backward(built.values, spent), others

    gradients, captures = run(True)
    assert all(torch.equal(g, gradients[n]) for n, g in run(False)[0].items())
    with built.executable.counting() as counted:
        low, high = (torch_peak(partial(run, held), built.model.device) for held in (False, True))
    assert counted and high - low >= max(c.nbytes for c in captures.values())
    assert low >= sum(g.nbytes for g in gradients.values())


def test_what_is_given_up_and_returned_shares_no_memory_with_others():
    kinds = dict.fromkeys(("x", "saved_a"), ((16,), "float32"))
    mod = program(lambda x, saved: relax.Tuple([saved, x + saved]), **kinds)
    function = block_memory.spending(mod["main"], ["saved_a"])
    made = runtime.make(tvm.IRModule({"main": function}), BuildOptions(OURS))
    compiled = runtime.Compiled(made, OURS, function)
    given = {n: torch.ones(16) for n in ("x", "saved_a")}
    for spent in ({}, dict(given)):
        same, total = compiled.spend(given, (), spent)
        assert same.data_ptr() != given["saved_a"].data_ptr() and same.equal(given["saved_a"])
        assert total.equal(given["x"] + given["saved_a"])
    assert spent == {"x": given["x"]}


def test_a_chain_needs_two_of_its_tensors_at_a_time():
    session, source = RelaxSession(), ModelSource("mlp")
    program = session.program_after(source, default_pipeline("relax", False))
    made = runtime.build(program, BuildOptions("llvm"))
    values = {n: torch.zeros(t.shape) for n, t in made.arguments.items()}
    machine, name = relax.VirtualMachine, "set_instrument"
    with mock.patch.object(machine, name, autospec=True, side_effect=getattr(machine, name)) as put:
        found = made.own_memory(values)
    # 8x64 to 8x256, a layer norm of that, and 8x10: in float32.
    assert (found.results, found.peak) == (8 * 10 * 4, 2 * 8 * 256 * 4)
    assert [c.args[0] is made.machine for c in put.call_args_list] == [False]  # it would stay


def made_of(build, **shapes):
    """A compiled function, and how many of its kernels write over what they read."""
    mod = program(build, **{n: (s, "float32") for n, s in shapes.items()})
    function = block_memory.spending(mod["main"], [])
    executable = runtime.make(tvm.IRModule({"main": function}), BuildOptions(OURS))
    calls = re.findall(r"call\s+(\w+)\s+in: (.*?)\s*dst: %void", executable.as_text())
    given = [args.split(", ") for name, args in calls if not name.startswith("vm.")]
    return runtime.Compiled(executable, OURS, function), sum(a[-1] in a[:-1] for a in given)


def gradient_of_softmax(p, g):
    """`a - total` may be written over `a`, and `* b` over that: all in one kernel."""
    a, b = op.matmul(p, g), op.matmul(g, p)
    total = op.sum(op.multiply(a, b), axis=1, keepdims=True)
    return op.matmul(op.multiply(op.subtract(a, total), b), g)


def test_an_elements_kernel_writes_over_what_nobody_else_reads():
    compiled, over = made_of(gradient_of_softmax, p=(16, 16), g=(16, 16))
    p, g = torch.randn(2, 16, 16).unbind()
    a, b = p @ g, g @ p
    expected = ((a - (a * b).sum(1, keepdim=True)) * b) @ g
    assert over == 1
    found = compiled.run({"p": p, "g": g})[0]
    assert (found - expected).abs().max() < rounding("float32", 3 * 16, expected.abs().max())
    own = compiled.own_memory({"p": p, "g": g})
    assert own.peak < 3 * p.nbytes  # a, b, and the sum


ELSEWHERE = {
    "read again": (
        lambda p, g: op.matmul(op.exp(m := op.matmul(p, g)), m),
        lambda p, g: (p @ g).exp() @ (p @ g),
    ),
    "read in another order": (
        lambda p, g: op.matmul(op.add(m := op.matmul(p, g), op.permute_dims(m)), g),
        lambda p, g: (p @ g + (p @ g).T) @ g,
    ),
    "an argument": (lambda p, g: op.matmul(op.exp(p), g), lambda p, g: p.exp() @ g),
    "each element of many": (
        lambda p, g: op.matmul(op.nn.softmax(op.matmul(p, g)), g),
        lambda p, g: (p @ g).softmax(1) @ g,
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_needed_elsewhere_is_not_written_over(name):
    build, expected = ELSEWHERE[name]
    compiled, over = made_of(build, p=(16, 16), g=(16, 16))
    p, g = (torch.randn(2, 16, 16) / 4).unbind()  # or exp makes too much of an error
    assert over == 0
    found = compiled.run({"p": p, "g": g})[0]
    wanted = expected(p, g)
    assert (found - wanted).abs().max() < rounding("float32", 3 * 16, wanted.abs().max())


def test_a_kernel_of_two_results_may_read_what_it_wrote_over():
    x = te.placeholder((4, 4), name="x")
    first, second = (te.compute((4, 4), lambda i, j: x[i, j] + 1.0, name=n) for n in "ab")
    assert overwritable(te.create_prim_func([x, first])) == (0,)
    assert overwritable(te.create_prim_func([x, first, second])) == ()
