"""Kernels on the CPU: convolutions, tiles of products, and memory that is used again."""

from functools import partial
from resource import RUSAGE_SELF, getrusage

import numpy as np
import pytest
import torch
from torch.nn import functional

from limits import rounding
from relascope.core import heap
from relascope.engine.cpu_kernels import convolutions, packed_matmul
from relascope.engine.cpu_kernels.buffer_pool import BufferPool, SharedMemory
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.cpu_kernels.packed_matmul import AVX2, AVX512, Registers
from relascope.engine.measure.memory import torch_peak
from relascope.passes.program import Mask

CPU = torch.device("cpu")
SHAPES = {  # batch, channels, size, outputs, window, stride, padding, dilation, groups
    "few pixels": (2, 96, (3, 4), 2048, (2, 3), 1, 1, 1, 1),
    "few pixels, strided, dilated": (1, 64, (7, 5), 1024, (3, 2), 2, 1, 2, 1),
    "pointwise, a product an image": (3, 5, (4, 6), 7, (1, 1), 1, 0, 1, 1),
    "pointwise, one product": (3, 5, (3, 2), 7, (1, 1), 1, 0, 1, 1),
    "pointwise, no image": (0, 5, (3, 2), 7, (1, 1), 1, 0, 1, 1),
    "pointwise, strided": (2, 5, (4, 6), 7, (1, 1), 2, 0, 1, 1),
    "groups": (2, 6, (4, 6), 4, (3, 3), 1, 1, 1, 2),
    "groups, strided, dilated": (2, 4, (9, 8), 6, (3, 2), 2, 1, 2, 2),
    "rows": (2, 6, (9,), 4, (1,), 1, 0, 1, 1),
}


class Convolution:
    """A convolution in float64, with what convolutions are asked for it."""

    def __init__(self, batch, channels, size, outputs, window, stride, padding, dilation, groups):
        torch.manual_seed(0)
        kind = {"dtype": torch.float64, "requires_grad": True}
        self.data = torch.randn(batch, channels, *size, **kind)
        self.weight = torch.randn(outputs, channels // groups, *window, **kind)
        convolve = functional.conv2d if len(size) == 2 else functional.conv1d
        about = stride, padding, dilation, groups
        self.made = convolve(self.data, self.weight, None, *about)
        self.grad = torch.randn_like(self.made)
        self.made.backward(self.grad)
        self.window = tuple((v,) * len(size) for v in (stride, padding, dilation))
        pairs = zip(size, self.made.shape[2:], window, strict=True)
        read = ((s, (m - 1) * stride + dilation * (w - 1) + 1) for s, m, w in pairs)
        self.more = tuple(s + 2 * padding - length for s, length in read)
        self.groups = groups

    def options(self, transposed=False):
        more = self.more if transposed else (0,) * len(self.more)
        return (*self.window, transposed, more, self.groups)


@pytest.mark.parametrize("name", SHAPES)
def test_forward_and_gradients_are_pytorchs(name):
    wanted = Convolution(*SHAPES[name])
    data, weight, grad = (t.detach().float() for t in (wanted.data, wanted.weight, wanted.grad))
    out = torch.empty(wanted.made.shape)
    convolutions.convolution(data, weight, wanted.options(), out)
    of_data, of_weight = torch.empty_like(data), torch.empty_like(weight)
    convolutions.convolution(grad, weight, wanted.options(True), of_data)
    convolutions.weight_gradient(data, grad, wanted.options(), of_weight)
    theirs = wanted.made, wanted.data.grad, wanted.weight.grad
    for made, exact in zip((out, of_data, of_weight), theirs, strict=True):
        largest = max([*exact.abs().flatten().tolist(), 0])
        limit = rounding("float32", max(weight[0].numel(), grad[:, 0].numel()), largest)
        torch.testing.assert_close(made.double(), exact, rtol=0, atol=limit)


def test_transposed_convolutions_may_make_nothing_or_outlast_their_stride():
    data = torch.randn(2, 6, 1, 2)
    for window, dilation, more in (((3, 1), 1, 0), ((3, 2), 2, 1)):
        weight, steps = torch.randn(6, 3, *window), ((1, 1), (1, 1), (dilation, dilation))
        options = (*steps, True, (more, more), 2)
        exact = torch.ops.aten.convolution(data, weight, None, *options)
        out = torch.empty_like(exact)
        convolutions.convolution(data, weight, options, out)
        torch.testing.assert_close(out, exact)


def test_infinity_meets_no_padding_and_large_weights_are_not_copied():
    wanted = Convolution(*SHAPES["few pixels"])
    data, weight, grad = (t.detach().float() for t in (wanted.data, wanted.weight, wanted.grad))
    out, of_weight = torch.empty(wanted.made.shape), torch.empty_like(weight)
    options, of_data = wanted.options(), torch.empty_like(data)
    runs = (
        partial(convolutions.convolution, data, weight, options, out),
        partial(convolutions.convolution, grad, weight, wanted.options(True), of_data),
        partial(convolutions.weight_gradient, data, grad, options, of_weight),
    )
    assert all(torch_peak(run, torch.device("cpu")) < weight.nbytes / 4 for run in runs)
    weight[0, 0, 0, 0] = grad[0, 0, 0, 0] = torch.inf
    for run in runs:
        run()
    of_weights = None, *options, (False, True, False)
    _, exact, _ = torch.ops.aten.convolution_backward(grad, data, weight, *of_weights)
    assert torch.equal(out.isnan(), functional.conv2d(data, weight, padding=1).isnan())
    assert torch.equal(of_weight.isnan(), exact.isnan())
    assert out.isinf().any()


@pytest.mark.parametrize(
    ("rows", "columns", "registers", "expected"),
    [
        (1024, 768, AVX2, (4, 24, 8)),  # nothing to fill up
        (14, 768, AVX2, (5, 16, 8)),  # 15 rows rather than 16
        (8, 64, AVX2, (4, 16, 8)),  # no panels of 24
        (2, 24, AVX2, (2, 24, 8)),
        (1024, 768, AVX512, (4, 48, 16)),
        (14, 768, AVX512, (7, 32, 16)),  # 14 rows rather than 16
        (14, 16, AVX512, (14, 16, 16)),
        (14, 24, AVX512, (4, 24, 8)),  # no panels of whole registers
        (1, 768, AVX2, None),  # a library does it better
        (14, 10, AVX2, None),
        (14, 1000 + 4, AVX2, None),
    ],
)
def test_tiles_fit_rows_columns_and_registers(rows, columns, registers, expected):
    assert packed_matmul.tile(rows, columns, registers) == expected


def test_an_llvm_that_spills_gets_smaller_tiles_and_few_rows():
    few = Registers(14)
    assert packed_matmul.tile(1024, 768, few) is None
    tile = packed_matmul.tile(16, 768, few)
    assert (tile.rows + 1) * tile.columns // packed_matmul.LANES < 14


def test_a_tile_goes_over_no_edge():
    within = packed_matmul.MatmulTile(5, 16).within
    assert all(map(within, [(15,), (1, 14), (3, 15)]))
    assert not any(map(within, [(3, 14), (2, 1, 7, 1)]))


def test_panels_hold_the_weight_column_by_column_of_panels():
    weight = np.arange(3 * 32, dtype="float32").reshape(3, 32)
    panels = packed_matmul.panels(weight, packed_matmul.MatmulTile(5, 16))
    assert (panels.shape, panels.flags.c_contiguous) == ((2, 3, 16), True)
    assert np.array_equal(panels.transpose(1, 0, 2).reshape(3, 32), weight)


def test_memory_is_given_again_when_nobody_has_it_and_only_then():
    pool, about = BufferPool(), ((500, 100), torch.float32, CPU)
    first = pool.take(*about)
    address, view = first.data_ptr(), first[3:]
    second = pool.take(*about)
    del first
    third = pool.take(*about)  # a view is somebody, too
    assert len({address, second.data_ptr(), third.data_ptr()}) == 3
    del view
    again = pool.take(*about)
    assert (again.data_ptr(), again.shape, pool.nbytes) == (address, (500, 100), 600_000)
    del again, second
    pool.release()
    assert pool.nbytes == 200_000


def test_freed_memory_stays_in_the_heap_while_contenders_are_timed():
    with heap.kept():
        for _ in range(5):
            before = getrusage(RUSAGE_SELF).ru_minflt
            torch.ones(10 << 20)
        assert getrusage(RUSAGE_SELF).ru_minflt - before < 1000


@pytest.mark.parametrize(("count", "dtype"), [(100, torch.float32), (100_000, torch.bfloat16)])
def test_what_is_small_or_unknown_to_numpy_is_not_kept(count, dtype):
    pool = BufferPool()
    assert pool.take((count,), dtype, CPU).dtype == dtype
    assert pool.nbytes == 0


def test_masks_take_the_memory_of_earlier_ones():
    masks = [Mask(name=name, rate=0.1, shape=(600, 300), dtype="float32") for name in "ab"]
    pool = BufferPool()
    first = draw_masks(masks, 0, CPU, pool)
    kept = {n: (m.data_ptr(), m.clone()) for n, m in first.items()}
    second = draw_masks(masks, 1, CPU, pool)  # while somebody has the first
    assert all(torch.equal(first[n], kept[n][1]) for n in "ab")
    assert not torch.equal(first["a"], second["a"])
    addresses = {m.data_ptr() for m in second.values()}
    del second
    third = draw_masks(masks, 0, CPU, pool)
    assert {m.data_ptr() for m in third.values()} == addresses
    assert all(torch.equal(third[n], kept[n][1]) for n in "ab")


def test_backwards_that_free_much_release_idle_memory():
    shared, released = SharedMemory(), []
    shared.provide(lambda: released.append(shared.pool.nbytes))
    shared.pool.take((50_000,), torch.float64, CPU)
    shared.settle(shared.hold(1 << 27))
    assert not released
    assert shared.pool.nbytes == 400_000
    many = [shared.hold(1 << 27) for _ in range(3)]
    shared.settle(many.pop())
    assert not released
    shared.settle(many.pop())
    assert released == [0]
    shared.settle(many.pop())  # the rest of the step
    assert released == [0, 0]
    more = [shared.hold(1 << 27) for _ in range(2)]
    del more[0]  # a forward without a backward is over, too
    shared.settle(more.pop())
    assert released == [0, 0, 0]
    shared.settle(shared.hold(1 << 27))
    assert released == [0, 0, 0]
