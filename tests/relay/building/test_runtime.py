"""Building and running on torch tensors: kernels, their order, and where what they write lies."""

import json
from contextlib import suppress
from functools import reduce
from itertools import product

import pytest
import torch
import tvm
from torch.nn import functional as F
from tvm import relay

from answers import refused
from limits import ELEMENTWISE, OUTPUT, POINTWISE, close, rounding
from relascope.engine.building.options import BuildOptions
from relascope.engine.measure.memory import torch_peak
from relascope.engine.relay.building import runtime
from relascope.engine.relay.building.bounded_fusion import bounded
from relascope.engine.relay.building.storages import Workspace, _places
from relascope.engine.relay.building.targets import BLAS
from relascope.engine.relay.kernels import summed
from relascope.passes.relay.absorb_transposes import absorb_transposes
from relay_functions import compiled, operators, program_of, var


def test_the_memory_of_a_large_result_is_used_again_when_nobody_has_it():
    function = compiled(relay.tanh(var("x", 256, 256)))

    def run():
        x = torch.randn(256, 256)
        (found,) = function.run({"x": x})
        assert torch.allclose(found, x.tanh(), atol=ELEMENTWISE)
        return found

    first = run()
    copy, address, view = first.clone(), first.data_ptr(), first[3:5].t()
    del first
    second = run()  # a part of the first is held still
    assert second.data_ptr() != address
    assert torch.equal(view, copy[3:5].t())
    address = second.data_ptr()
    array, kept = second.numpy(), second.clone()
    del second
    third = run()
    assert third.data_ptr() != address
    assert (array == kept.numpy()).all()
    address = third.data_ptr()
    del third
    assert run().data_ptr() == address
    assert function.own_memory({}).peak >= 256 * 256 * 4


def test_views_of_inputs_and_outputs_see_each_call():
    """The executor does nothing for a reshape; what lies behind one must not be stale."""
    x = var("x", 4, 8)
    view = relay.reshape(x, (2, 16))
    result = relay.tanh(view)
    body = relay.Tuple([result, relay.reshape(result, (32,)), view, x, relay.exp(x), result])
    function = compiled(body)
    for _ in range(2):
        value = torch.randn(4, 8)
        results, flat = function.run({"x": value}), value.reshape(2, 16)
        expected = [flat.tanh(), flat.tanh().reshape(32), flat, value, value.exp(), flat.tanh()]
        for ours, theirs in zip(results, expected, strict=True):
            assert ours.shape == theirs.shape
            assert torch.allclose(ours, theirs, atol=ELEMENTWISE)
        results[2].zero_()
        assert not torch.equal(value, torch.zeros(4, 8))  # results are no views of the input


def test_a_viewed_argument_is_pointed_at():
    """The executor holds nothing: results have memory of their own."""
    view = relay.reshape(var("x", 64, 128), (32, 256))
    flat = relay.reshape(view, (-1,))
    function = compiled(relay.Tuple([relay.tanh(view), relay.exp(flat), flat]), opt_level=0)
    for _ in range(2):
        value = torch.randn(64, 128)
        tanh, exp, same = function.run({"x": value})
        assert torch.equal(same, value.flatten())
        same.zero_()
        assert value.any()
        assert torch.allclose(tanh, value.reshape(32, 256).tanh(), atol=ELEMENTWISE)
        assert torch.allclose(exp, value.flatten().exp(), rtol=ELEMENTWISE)
        assert function._held == {} and function._pointed_in == {"x"}
    assert function.own_memory({}).peak == 0


def test_a_view_of_an_argument_that_was_copied_is_read_before_the_copy_goes():
    function = compiled(relay.Tuple([relay.reshape(var("x", 8, 4), (32,))]))
    for _ in range(20):  # memory that is let go is soon another's
        value = torch.randn(4, 8).t()
        (found,) = function.run({"x": value})
        assert torch.equal(found, value.reshape(32))


def test_a_tensor_of_another_device_is_not_copied_over_the_one_before(monkeypatch):
    function = compiled(relay.tanh(var("x", 4, 8)))
    here, there = torch.randn(4, 8), torch.randn(4, 8)
    before = here.clone()
    function.run({"x": here})
    monkeypatch.setattr(runtime, "as_array", lambda tensor, device: tvm.nd.array(tensor.numpy()))
    for value, home in ((there, "meta"), (here, "cpu"), (there, "meta")):
        function._pointer("x")._home = torch.device(home)
        (found,) = function.run({"x": value})
        assert torch.allclose(found, value.tanh(), atol=ELEMENTWISE)
    assert torch.equal(here, before)


def test_inputs_in_any_layout_of_memory():
    function, base = compiled(relay.exp(var("x", 3, 5))), torch.randn(40)
    views = base[:15].view(5, 3).t(), base[1:16].view(3, 5), base[:3, None].expand(3, 5)
    for value in (*views, torch.randn(3, 5).requires_grad_()):
        (result,) = function.run({"x": value})
        assert torch.allclose(result, value.exp(), atol=ELEMENTWISE)
        assert not result.requires_grad


LAYOUTS = {
    "contiguous": lambda: torch.randn(4, 4),
    "transposed": lambda: torch.randn(4, 4).t(),
    "unaligned": lambda: torch.randn(17)[1:].view(4, 4),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_kept_arguments_are_read_anew_when_changed_in_place_or_replaced(make):
    function = compiled(relay.add(var("w", 4, 4), var("x", 4, 4)))
    weight, x = make(), torch.randn(4, 4)
    for change in (lambda w: w, lambda w: w.mul_(2), torch.zero_, lambda _: make()):
        weight = change(weight)
        (result,) = function.run({"w": weight, "x": x}, keep=["w"])
        assert torch.allclose(result, weight + x)


def test_bool_and_integers_go_in_and_come_out_and_bool_shares_memory():
    x, chosen, n = var("x", 6), var("chosen", 6, dtype="bool"), var("n", 6, dtype="int64")
    picked, positive = relay.where(chosen, x, relay.negative(x)), relay.greater(x, relay.const(0.0))
    function = compiled(relay.Tuple([picked, positive, n + relay.const(1, "int64")]))
    for _ in range(3):  # memory that was freed too early would show
        value, flags = torch.randn(6), torch.rand(6) > 0.5
        picked, positive, more = function.run({"x": value, "chosen": flags, "n": torch.arange(6)})
        assert torch.equal(picked, torch.where(flags, value, -value))
        assert positive.dtype is torch.bool
        assert torch.equal(positive, value > 0)
        assert torch.equal(more, torch.arange(6) + 1)
    given = torch.tensor([True, False, True])
    array = runtime.as_array(given, tvm.cpu(0))
    assert array.dtype == "bool"
    found = runtime.as_tensor(array)
    assert found.data_ptr() == given.data_ptr() and array.dtype == "bool"
    assert found.dtype is torch.bool and torch.equal(found, given)


def test_wrong_arguments_are_refused_by_name():
    function, other = compiled(relay.tanh(var("x", 2))), torch.zeros(3)
    wrong = {"missing": {}, r"float32\[3\]": {"x": other}, "float64": {"x": other[1:].double()}}
    for words, values in wrong.items():
        with refused("input", words, where="x"):
            function.run(values)


def test_erf_of_float64_is_computed_in_float64():
    value = torch.linspace(-4, 4, 101, dtype=torch.float64)
    (result,) = compiled(relay.erf(var("x", 101, dtype="float64"))).run({"x": value})
    assert (result - torch.erf(value)).abs().max() < rounding("float64", POINTWISE)
    (single,) = compiled(relay.erf(var("x", 101))).run({"x": value.float()})
    assert (single - torch.erf(value.float())).abs().max() < ELEMENTWISE


@pytest.mark.parametrize(("turn_a", "turn_b"), product((False, True), repeat=2))
def test_a_transposed_product_is_one_kernel_of_pytorch(turn_a, turn_b, monkeypatch):
    calls, own = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda *a, **k: calls.append(1) or own(*a, **k))
    a, b = torch.randn((5, 3) if turn_a else (3, 5)), torch.randn((4, 5) if turn_b else (5, 4))
    left, right = var("a", *a.shape), var("b", *b.shape)
    left = relay.transpose(left) if turn_a else left
    made = relay.nn.dense(left, right if turn_b else relay.transpose(right))
    function = compiled(relay.transpose(made), f"llvm {BLAS}")
    nodes = json.loads(function.library.get_graph_json())["nodes"]
    assert sum(n["op"] == "tvm_op" for n in nodes) == 1
    (result,) = function.run({"a": a, "b": b})
    assert calls == [1]
    exact = ((a.T if turn_a else a) @ (b.T if turn_b else b)).T
    assert (result - exact).abs().max() < rounding("float32", 5, exact.abs().max())


def test_many_added_products_and_sums_over_rows_are_one_each():
    count, few = summed.FEW, summed.FEW - 1
    given = {var(f"x{k}", 3, 5): torch.randn(3, 5) for k in range(count)}
    products = [relay.nn.dense(x, x) for x in map(relay.transpose, given)]
    sums, exact = [relay.sum(x, 0) for x in given], [x.T @ x for x in given.values()]
    others = relay.exp(products[0])  # reads a term
    for terms, called, wanted in (
        (products, {"nn.matmul": 1}, sum(exact)),
        (products[:few], {"nn.matmul": few}, sum(exact[:few])),
        ([*products, others], {"nn.matmul": count}, sum(exact) + exact[0].exp()),
        (sums, {"sum": 1}, sum(x.sum(0) for x in given.values())),
    ):
        body = reduce(relay.add, terms)
        program = summed.merged(absorb_transposes(program_of(body)))
        assert called.items() <= operators(program).items()
        (result,) = compiled(body, f"llvm {BLAS}").run({x.name_hint: v for x, v in given.items()})
        torch.testing.assert_close(result, wanted, **close(rounding("float32", 3 * count)))


def test_sums_scattered_into_zeros_take_the_memory_of_their_result():
    for places, size in (
        ([[3, 0, 3]], (500, 7)),
        ([[3, 0, 3], [1, 6, 1]], (500, 7)),
        ([[[3, 0], [3, 3]]], (500, 2, 3)),
    ):
        index = torch.tensor(places)
        updates = torch.randn(*index.shape[1:], *size[len(index) :])
        given = var("i", *index.shape, dtype="int64"), var("u", *updates.shape)
        function = compiled(relay.scatter_nd(relay.zeros(size, "float32"), *given, "add"))
        (found,) = function.run({"i": index, "u": updates})
        exact = torch.zeros(size).index_put(tuple(index), updates, accumulate=True)
        torch.testing.assert_close(found, exact)
        assert function.storages.nbytes == 0
        assert "AllocWorkspace" not in function.library.lib.get_source()


def test_building_the_same_again_is_remembered_and_what_cannot_be_is_said():
    first, again = (compiled(relay.tanh(var("x", 9))) for _ in range(2))
    assert first.library is again.library
    assert compiled(relay.tanh(var("x", 9)), opt_level=0).library is not first.library
    assert compiled(relay.tanh(var("y", 9))).library is not first.library
    with refused("target", "refuses this target"):
        compiled(relay.tanh(var("x", 4)), "no_such_target")


def test_storages_lie_where_none_is_alive_and_functions_of_a_step_share_them():
    """By first and last kernel and bytes: the largest lowest, others beside those of their time."""
    lives = {1: (0, 1, 640), 2: (1, 2, 64), 3: (2, 3, 600), 4: (3, 4, 100), 5: (0, 4, 1)}
    assert _places(lives) == {1: 0, 3: 0, 4: 640, 2: 640, 5: 768}
    shared = Workspace()
    small, large = var("x", 64), var("x", 4096)
    bodies = [relay.exp(relay.tanh(small)), relay.exp(relay.tanh(large))]
    first, second = (compiled(b, opt_level=0, workspace=shared) for b in bodies)
    x, y = torch.randn(64), torch.randn(4096)
    for _ in range(2):
        assert torch.allclose(first.run({"x": x})[0], x.tanh().exp(), atol=ELEMENTWISE)
        assert torch.allclose(second.run({"x": y})[0], y.tanh().exp(), atol=ELEMENTWISE)
    both = first.own_memory({}).followed_by(second.own_memory({}))
    assert (first.own_memory({}).kept, both.kept) == (64 * 4, 4096 * 4)
    assert shared.memory().nbytes == 4096 * 4


def test_a_result_takes_the_place_of_what_its_kernel_reads_last():
    """An element at a time, unless TVM fuses what reads another place, too."""
    x, given = var("x", 64, 64), torch.randn(64, 64)
    first, t = relay.nn.softmax(x), given.softmax(1)
    turned, sums = relay.transpose(first), relay.sum(first, 1, keepdims=True)
    for body, exact, level, count in (
        (relay.exp(relay.exp(relay.reshape(first, [8, 512]))), t.exp().exp(), 0, 1),
        (relay.exp(relay.exp(turned)), t.T.exp().exp(), 0, 2),
        (relay.exp(relay.add(relay.exp(first), first)), (t.exp() + t).exp(), 0, 2),
        (relay.exp(relay.subtract(first, sums)), (t - t.sum(1, True)).exp(), 0, 1 + 1 / 64),
        (relay.nn.softmax(relay.exp(first) + first), (t.exp() + t).softmax(1), 3, 1),
        (relay.nn.softmax(turned + first), (t.T + t).softmax(1), 3, 2),
    ):
        function = compiled(body, opt_level=level)
        (found,) = function.run({"x": given})
        assert torch.allclose(found.view(64, 64), exact, **close(OUTPUT))
        assert function.storages.nbytes == count * t.nbytes


def test_kernels_run_where_they_hold_least():
    """TVM computes again first what is read last, and sums up last what it has long had."""
    x, w, a = (var(n, 64, 64) for n in "xwa")
    chain = reduce(relay.nn.dense, [w] * 3, x)
    total = relay.sum(relay.multiply(relay.tanh(x), w), axis=1)
    body = relay.Tuple([relay.multiply(relay.exp(a), chain), total])
    function = compiled(body, opt_level=0)
    values = {n: torch.randn(64, 64) / 8 for n in "xwa"}
    x, w, a = values.values()
    expected = a.exp() * (x @ w.T @ w.T @ w.T), (x.tanh() * w).sum(1)
    for found, right in zip(function.run(values), expected, strict=True):
        assert torch.allclose(found, right, **close(OUTPUT))
    assert function.own_memory({}).peak == 2 * 64 * 64 * 4  # by TVM's order, a third of these


def test_a_call_stops_to_free_what_it_has_read_and_starts_anew_after_an_error(monkeypatch):
    names, size = [f"saved_{n}" for n in "abcd"], 512 * 512 * 4
    body = relay.Tuple([relay.exp(var(n, 512, 512)) for n in names])
    main = program_of(body, *relay.analysis.free_vars(body)).main
    function = runtime.Compiled(compiled(body).library, "llvm", main, spends=names)
    take = function._empty

    def drawn():
        return {n: torch.randn(512, 512) for n in names}

    for stop in range(5):
        with monkeypatch.context() as patch, suppress(ZeroDivisionError):
            patch.setattr(function, "_empty", lambda i, at=stop: take(i // (i != at)))
            function.spend({}, (), drawn())
        spent = drawn()
        expected = [t.exp() for t in spent.values()]
        found = function.spend({}, (), spent)
        assert all(map(torch.allclose, found, expected)) and not spent
    with function.counting() as counted:
        assert counted
        assert torch_peak(lambda: function.spend({}, (), drawn()), torch.device("cpu")) == 5 * size
    assert function.own_memory({}).peak == 5 * size


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


@pytest.mark.parametrize("join", [relay.concatenate, relay.stack])
def test_many_parts_are_slices_and_joined_in_groups(join):
    parts = relay.split(var("x", 4, 40), 40, -1)
    program = program_of(join([relay.negative(parts[i]) for i in range(40)], -1))
    assert ends(bounded(program)) == 3 and not operators(bounded(program))["split"]
    values = torch.randn(4, 40)
    (found,) = runtime.build(program, BuildOptions("llvm")).run({"x": values})
    assert torch.equal(found, -values.reshape(found.shape))


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
