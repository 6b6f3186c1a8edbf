"""Dropout masks from PyTorch's own random numbers, drawn by a kernel.

On a CPU, PyTorch may draw `bernoulli_` serially, 64 bits of a Mersenne Twister per number. A TVM
kernel vectorises these steps (Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8, 1998) and
leaves PyTorch's generator in the same state. The first mask checks that PyTorch draws this way.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from relascope.engine.cpu_kernels.openblas import let

_WORDS, _MIDDLE = 624, 397
"""Words of the state, and how far ahead a new word looks."""

_PAIRS = _WORDS // 2
_UPPER, _LOWER, _MATRIX = 0x80000000, 0x7FFFFFFF, 0x9908B0DF
_BITS = 53
"""The bits, of each 64, that PyTorch makes a number between 0 and 1 from."""

_LAYOUT = np.dtype(
    [("seed", "u8"), ("left", "i4"), ("seeded", "i4"), ("next", "u8"), ("words", "u8", _WORDS)]
)
"""How the bytes of `torch.get_rng_state()` begin."""

Kernel = Callable[[Sequence[torch.Tensor]], Any]
"""Runs `computation` on tensors, its arguments in order."""


def draw(kernel: Kernel, mask: torch.Tensor, keep: float) -> torch.Tensor:
    """Fill a mask (contiguous, uint8, on the CPU) from PyTorch's generator, and leave that as
    PyTorch would; `keep` is the probability of a 1, between 0 and 1."""
    raw = torch.get_rng_state()
    state = np.frombuffer(raw.numpy(), _LAYOUT, count=1)  # shares its memory
    drawn = _WORDS if state["left"][0] == 1 else int(state["next"][0])
    limit = math.ceil(keep * (1 << _BITS))  # the product is exact
    with torch.device("cpu"):  # whatever PyTorch's default is
        words = torch.tensor(state["words"][0].astype(np.uint32))
        where = torch.tensor([drawn], dtype=torch.int32)
        below = torch.tensor([limit >> 32, limit & 0xFFFFFFFF], dtype=torch.uint32)
        after, room = (torch.empty(n, dtype=torch.uint32) for n in (_WORDS, _WORDS + 1))
        kernel((words, where, below, mask.view(-1), after, room))
    total = drawn + 2 * mask.numel()
    place = (total - 1) % _WORDS + 1
    state["words"][0] = after.numpy()
    state["next"][0], state["left"][0] = place, _WORDS + 1 - place
    torch.set_rng_state(raw)
    return mask


def agrees(kernel: Kernel) -> bool:
    """Whether PyTorch and the kernel draw the same numbers, from any place of the state."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        for before, count, keep in ((0, 700, 0.9), (3, 1001, 0.5), (0, 5, 1e-3)):
            torch.rand(before)
            start = torch.get_rng_state()
            theirs = torch.empty(count, dtype=torch.uint8).bernoulli_(keep)
            end = torch.get_rng_state()
            torch.set_rng_state(start)
            same = torch.equal(draw(kernel, torch.empty_like(theirs), keep), theirs)
            if not same or not torch.equal(torch.get_rng_state(), end):
                return False
    return True


def computation(te: Any, tir: Any) -> list[Any]:
    """The kernel in TVM's tensor expressions: its arguments, inputs before outputs.

    Inputs are the state's words (uint32, 624), how many of them are drawn already (int32, 1), and
    the limit below which 53 bits are a success (uint32, high and low part). Outputs are the mask
    (uint8, of any length), the state's words after it (uint32, 624), and scratch memory (uint32,
    625).
    """
    count = te.var("count")
    words = te.placeholder((_WORDS,), "uint32", "words")
    where = te.placeholder((1,), "int32", "where")
    inputs = [words, where, te.placeholder((2,), "uint32", "limit")]
    shapes, dtypes = [(count,), (_WORDS,), (_WORDS + 1,)], ["uint8", "uint32", "uint32"]
    buffers = {
        "in_buffers": [tir.decl_buffer(t.shape, t.dtype) for t in inputs],
        "out_buffers": [tir.decl_buffer(*kind) for kind in zip(shapes, dtypes, strict=True)],
    }

    def loops(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        return _Loops(tir, ins, outs).all()

    return [*inputs, *te.extern(shapes, inputs, loops, name="masks", dtype=dtypes, **buffers)]


class _Loops:
    """The kernel's loops. A pair of words makes one number.

    `room` keeps an unpaired word before those of the state: a pair may cross two blocks of words.
    """

    def __init__(self, tir: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.tir, (self.words, where, limit) = tir, inputs
        self.mask, self.state, self.room = outputs
        self.once: list[tuple[Any, Any]] = []
        self.high, self.low = (self._fixed("limit", "uint32", limit[i]) for i in range(2))
        self.odd = self._fixed("odd", "int32", where[0] % 2)
        self.skipped = self._fixed("skipped", "int32", (where[0] + 1) // 2)
        self.end = self._fixed("end", "int32", self.skipped + self.mask.shape[0])

    def _fixed(self, name: str, dtype: str, value: Any) -> Any:
        """A variable for a value that no loop changes; a compiler cannot know that of memory."""
        self.once.append((self.tir.Var(name, dtype), value))
        return self.once[-1][0]

    def all(self) -> Any:
        tir = self.tir
        copied = self._loop(
            "k", 0, _WORDS, lambda k: tir.BufferStore(self.state, self.words[k], [k])
        )
        blocks = (self.end + _PAIRS - 1) // _PAIRS
        body = tir.SeqStmt([copied, self._loop("block", 0, blocks, self._block)])
        for variable, value in reversed(self.once):
            body = let(tir, variable, value, body)
        return body

    def _loop(self, name: str, begin: Any, end: Any, body: Callable[[Any], Any]) -> Any:
        tir = self.tir
        at = tir.Var(name, "int32")
        return tir.For(at, 0, end - begin, tir.ForKind.SERIAL, body(begin + at))

    def _block(self, block: Any) -> Any:
        tir, state, room = self.tir, self.state, self.room
        near, far = _WORDS - _MIDDLE, _MIDDLE - _WORDS
        twist = tir.SeqStmt(
            [
                self._loop("k", 0, near, lambda k: self._new(k, k + _MIDDLE, k + 1)),
                self._loop("k", near, _WORDS - 1, lambda k: self._new(k, k + far, k + 1)),
                self._new(_WORDS - 1, _MIDDLE - 1, 0),
            ]
        )
        left = tir.BufferStore(room, room[_WORDS], [0])
        temper = self._loop(
            "k", 0, _WORDS, lambda k: tir.BufferStore(room, self._tempered(state[k]), [k + 1])
        )
        begin = tir.max(0, self.skipped - block * _PAIRS)
        end = tir.min(_PAIRS, self.end - block * _PAIRS)
        # Two loops, because a compiler vectorises accesses that begin at a known place.
        odd = self._loop("j", begin, end, lambda j: self._draw(block, j, 0))
        even = self._loop("j", begin, end, lambda j: self._draw(block, j, 1))
        draw = tir.IfThenElse(self.odd > 0, odd, even)
        return tir.SeqStmt([tir.IfThenElse(block > 0, twist, None), left, temper, draw])

    def _number(self, value: int) -> Any:
        return self.tir.const(value, "uint32")

    def _new(self, k: Any, other: Any, following: Any) -> Any:
        number, state = self._number, self.state
        mixed = (state[k] & number(_UPPER)) | (state[following] & number(_LOWER))
        is_odd = (state[following] & number(1)) > number(0)
        turn = self.tir.Select(is_odd, number(_MATRIX), number(0))
        return self.tir.BufferStore(state, state[other] ^ (mixed >> number(1)) ^ turn, [k])

    def _tempered(self, y: Any) -> Any:
        number = self._number
        y = y ^ (y >> number(11))
        y = y ^ ((y << number(7)) & number(0x9D2C5680))
        y = y ^ ((y << number(15)) & number(0xEFC60000))
        return y ^ (y >> number(18))

    def _draw(self, block: Any, j: Any, first: int) -> Any:
        tir, room = self.tir, self.room
        at = 2 * j + first
        high = room[at] & self._number((1 << (_BITS - 32)) - 1)
        low = room[at + 1]
        below = tir.any(high < self.high, tir.all(tir.EQ(high, self.high), low < self.low))
        drawn = tir.Select(below, tir.const(1, "uint8"), tir.const(0, "uint8"))
        return tir.BufferStore(self.mask, drawn, [block * _PAIRS + j - self.skipped])
