"""Dropout masks, drawn as PyTorch draws them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace

import torch

from relascope.engine.cpu_kernels import mersenne_twister
from relascope.engine.cpu_kernels.buffer_pool import BufferPool
from relascope.engine.pytorch.draws import numbers_of
from relascope.engine.pytorch.model import generator_states, seeded
from relascope.passes.program import Mask

_FEW = 1 << 15
"""Elements up to which PyTorch is quicker than the kernel, which reads its generator's state."""


class MaskDrawing:
    """Draws masks in this process: by PyTorch, or by a kernel once an engine provides one."""

    def __init__(self) -> None:
        self._make: Callable[[], mersenne_twister.Kernel] | None = None
        self._kernel: mersenne_twister.Kernel | None = None

    def provide(self, make: Callable[[], mersenne_twister.Kernel]) -> None:
        """Provide a kernel, which is made and tried at the first mask that is worth it."""
        self._make = make

    def kernel(self) -> mersenne_twister.Kernel | None:
        """The kernel; None without one, or if PyTorch's numbers differ."""
        if self._make is not None:
            kernel, self._make = self._make(), None
            self._kernel = kernel if mersenne_twister.agrees(kernel) else None
        return self._kernel


DRAWING = MaskDrawing()


def draw_masks(
    masks: Iterable[Mask],
    seed: int | None,
    device: torch.device | str = "cpu",
    pool: BufferPool | None = None,
    again: Collection[Mask] = (),
) -> dict[str, torch.Tensor]:
    """Draw dropout masks as PyTorch draws them in a forward pass under the same seed.

    Args:
        seed: as `ModelSource.seed`; None draws from the current state of PyTorch's generator.
        device: to draw on: PyTorch draws other numbers on a GPU than on the CPU.
        pool: masks of earlier calls, to reuse their memory; None allocates.
        again: those of the masks that `drawn_again` will draw a second time.

    Returns:
        By name, 0 and 1 as uint8 in the mask's shape, or as bits, drawn by the model's own dropout
        on ones; for other random operators, their results. By `Mask.state` of those in `again`, the
        generator's state before they were drawn.
    """
    device, pool, drawn = torch.device(device), pool or BufferPool(), dict[str, torch.Tensor]()
    named = {m.name for m in again}
    with nullcontext() if seed is None else seeded(seed):
        for mask in masks:
            if mask.name in named:
                drawn[mask.state] = generator_states(device)[-1]
            drawn[mask.name] = _mask(mask, device, pool)
    return drawn


def drawn_again(
    masks: Collection[Mask],
    values: Mapping[str, torch.Tensor],
    device: torch.device | str = "cpu",
    pool: BufferPool | None = None,
) -> dict[str, torch.Tensor]:
    """Draw masks a second time, from their states, which `values` has by name. PyTorch's generators
    keep their states."""
    found, device = dict[str, torch.Tensor](), torch.device(device)
    on_gpu = device.type == "cuda"
    if not masks:
        return found
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        for mask in masks:
            state = values[mask.state]
            torch.cuda.set_rng_state(state, device) if on_gpu else torch.set_rng_state(state)
            found[mask.name] = _mask(mask, device, pool or BufferPool())
    return found


def _mask(mask: Mask, device: torch.device, pool: BufferPool) -> torch.Tensor:
    if mask.draw:
        return numbers_of(mask, device)
    if mask.bits:
        return _packed(_mask(replace(mask, bits=False), device, BufferPool()), mask.input_shape[1])
    if mask.order:
        lying = Mask(mask.name, mask.rate, tuple(mask.shape[a] for a in mask.order), mask.dtype)
        places = [mask.order.index(axis) for axis in range(len(mask.order))]
        return _mask(lying, device, pool).permute(places).contiguous()
    held = getattr(torch, mask.input_dtype)
    if device.type == "cpu" and 0 < mask.rate < 1:  # as dropout does, without a pass over ones
        made = pool.take(mask.shape, held, device)
        kernel = DRAWING.kernel() if made.numel() > _FEW else None
        if kernel is not None:
            return mersenne_twister.draw(kernel, made, 1 - mask.rate)
        return made.bernoulli_(1 - mask.rate)
    ones = torch.ones(mask.shape, dtype=getattr(torch, mask.dtype), device=device)
    return torch.nn.functional.dropout(ones, mask.rate, training=True).ne(0).to(held)


def _packed(mask: torch.Tensor, columns: int) -> torch.Tensor:
    """A mask with one bit per element, as in `Mask.bits`."""
    flat = mask.flatten()
    eighths = torch.nn.functional.pad(flat, (0, 8 * columns - len(flat))).view(8, columns)
    rows = eighths[7].clone()
    for eighth in reversed(eighths[:7].unbind()):
        rows.mul_(2).add_(eighth)
    return rows.view(1, columns)
