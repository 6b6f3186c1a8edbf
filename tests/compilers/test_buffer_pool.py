"""Memory is used again once nobody has it, and never before; much of it goes back."""

import pytest
import torch

from relascope.engine.cpu_kernels.buffer_pool import BufferPool, SharedMemory
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.passes.program import Mask

CPU = torch.device("cpu")


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
    idle = shared.pool.take((50_000,), torch.float64, CPU)
    del idle
    few = [shared.hold(1 << 27)]
    shared.settle(few.pop())
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
