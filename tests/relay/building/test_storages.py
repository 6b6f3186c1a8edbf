"""The order of an executor's kernels, and where what they write lies."""

import json

import torch
from tvm import relay

from limits import ELEMENTWISE, OUTPUT, close
from relascope.engine.relay.building.storages import Workspace, _places, ordered
from relay_functions import compiled, var


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


def names(layout):
    return [n["name"].removeprefix("tvmgen_default_fused_") for n in layout["nodes"]]


def test_kernels_run_where_they_hold_least():
    """TVM computes again first what is read last, and sums up last what it has long had."""
    x, w, a = (var(n, 64, 64) for n in "xwa")
    chain = x
    for _ in range(3):
        chain = relay.nn.dense(chain, w)
    total = relay.sum(relay.multiply(relay.tanh(x), w), axis=1)
    body = relay.Tuple([relay.multiply(relay.exp(a), chain), total])
    function = compiled(body, opt_level=0)
    ours = ordered(json.loads(function.library.get_graph_json()))
    chains = ["nn_dense", "nn_dense_1", "nn_dense_2"]
    early, late = ["tanh", "multiply_1", "sum"], ["exp", "multiply"]
    order = [n for n in names(ours) if n not in "xwa"]
    assert [n for n in order if n in (*chains, *late)] == [*chains, *late]
    assert [n for n in order if n in early] == early
    values = {n: torch.randn(64, 64) / 8 for n in "xwa"}
    x, w, a = values.values()
    expected = a.exp() * (x @ w.T @ w.T @ w.T), (x.tanh() * w).sum(1)
    for found, right in zip(function.run(values), expected, strict=True):
        assert torch.allclose(found, right, **close(OUTPUT))
    assert function.own_memory({}).peak == 2 * 64 * 64 * 4  # by TVM's order, a third of these
