"""Memory is used again once nobody has it, and never before."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch

from relascope.engine.cpu_kernels.buffer_pool import BufferPool
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.passes.program import Mask

CPU = torch.device("cpu")


def test_memory_is_given_again_when_nobody_has_it_and_else_replaced():
    pool = BufferPool()
    assert pool.again("a") is None
    first = pool.fresh("a", (500, 100), torch.float32, CPU)
    address, view = first.data_ptr(), first[3:]
    assert pool.again("a") is None
    del first
    assert pool.again("a") is None  # a view is somebody, too
    del view
    again = pool.again("a")
    assert (again.data_ptr(), again.shape) == (address, (500, 100))
    assert pool.nbytes == 200_000
    pool = BufferPool()
    held, other = (pool.fresh("a", (50_000,), torch.float64, CPU).fill_(n) for n in (1, 2))
    assert held.eq(1).all() and other.eq(2).all()
    assert pool.nbytes == 400_000


@pytest.mark.parametrize("known", [False, True])
def test_two_threads_never_get_the_same_memory(known, monkeypatch):
    pool, lend, met = BufferPool(), BufferPool._lend, threading.Barrier(2)

    def both(pool, key):
        with suppress(threading.BrokenBarrierError):
            met.wait(0.2)  # until both are here, if they can be
        return lend(pool, key)

    def taken(_):
        found = pool.again("a") if known else None
        return pool.fresh("a", (50_000,), torch.float64, CPU) if found is None else found

    if known:
        taken(None)
    monkeypatch.setattr(BufferPool, "_lend", both)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(taken, range(2))
    assert one.data_ptr() != other.data_ptr()


@pytest.mark.parametrize(("count", "dtype"), [(100, torch.float32), (100_000, torch.bfloat16)])
def test_what_is_small_or_unknown_to_numpy_is_not_kept(count, dtype):
    pool = BufferPool()
    assert pool.fresh("a", (count,), dtype, CPU).dtype == dtype
    assert (pool.again("a"), pool.nbytes) == (None, 0)


def test_masks_take_the_memory_of_earlier_ones():
    masks = [Mask(name=name, rate=0.1, shape=(600, 300), dtype="float32") for name in "ab"]
    pool = BufferPool()
    first = draw_masks(masks, 0, CPU, pool)
    kept = {n: (m.data_ptr(), m.clone()) for n, m in first.items()}
    second = draw_masks(masks, 1, CPU, pool)  # while somebody has the first
    assert all(torch.equal(first[n], kept[n][1]) for n in "ab")
    assert not torch.equal(first["a"], second["a"])
    addresses = {m.data_ptr() for m in second.values()}
    del first, second
    third = draw_masks(masks, 0, CPU, pool)
    assert {m.data_ptr() for m in third.values()} == addresses
    assert all(torch.equal(third[n], kept[n][1]) for n in "ab")
