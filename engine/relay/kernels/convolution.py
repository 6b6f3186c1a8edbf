"""Tiles of convolutions in Relay's build for the CPU.

TVM's kernel (`tvm/topi/x86/conv2d_avx_common.py`, `conv2d_avx_1x1.py`) sums some pixels of a row
times a block of channels at a time: its tile. Untuned, that is twice what 16 registers hold. Here a
tile is chosen that fits; a record of tuning goes before it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import autotvm
from tvm.target.x86 import get_simd_32bit_lanes
from tvm.topi.nn.utils import get_pad_tuple

from relascope.engine.relay.kernels.schedules import REGISTERS
from relascope.engine.relay.tvm.quiet import quiet

_TEMPLATE = "conv2d_NCHWc.x86"

_BYTES = 32
"""Of a register of a processor with AVX2, which has 16. Those with AVX-512 have twice as many, and
wider ones: TVM's own tiles fit."""

_UNDER_WAY = 10
"""Sums that two units of 5 cycles each can work on at a time; a tile of fewer waits for its own."""

_VECTORS = (2, 4, 1, 1 / 2, 1 / 4)
"""In a block of channels, whose number LLVM wants to be a power of two; the first is best among
equals."""


@dataclass(frozen=True)
class ConvolutionTile:
    """What is summed up in registers: `pixels` in each of `rows`, times `outputs` channels.
    `inputs` are channels that are summed over before the next pixel of the kernel."""

    inputs: int
    outputs: int
    rows: int
    pixels: int


def tile(
    channels: tuple[int, int],
    read: tuple[int, int],
    made: tuple[int, int],
    flat: bool,
    lanes: int,
    blocks: tuple[int, int] | None = None,
) -> ConvolutionTile:
    """The tile for a convolution. It reads rows of pixels as in `read`, and makes those in `made`;
    where it is `flat`, the kernel is one pixel, and such a tile may have several rows. `lanes` are
    elements in a register, `blocks` those of channels, where their layout has such already."""
    given, wanted = blocks or (None, None)
    outputs, rows, pixels = _best(channels[1], made, flat, lanes, wanted)
    # What is read was most likely made by a convolution like this one, in its blocks.
    inputs = given or _best(channels[0], read, flat, lanes, None)[0]
    return ConvolutionTile(inputs, outputs, rows, pixels)


def _best(
    channels: int, size: tuple[int, int], flat: bool, lanes: int, block: int | None
) -> tuple[int, int, int]:
    """Channels, rows and pixels of the tile with the fewest cycles an element."""
    fitting = [int(v * lanes) for v in _VECTORS if channels % (v * lanes) == 0]
    blocks = [block] if block else fitting or [max(d for d in range(1, lanes) if channels % d == 0)]
    heights = _divisors(size[0])[::-1] if flat else [1]  # rows of their own are read apart

    def cost(part: tuple[int, int, int]) -> float:
        vectors, count = math.ceil(part[0] / lanes), part[1] * part[2]
        if vectors * (count + 1) >= REGISTERS:
            return math.inf if count > 1 else REGISTERS
        steps = max(vectors * count, vectors + count, _UNDER_WAY)  # multiplied, read, waited for
        return steps / (part[0] / lanes * count)

    return min(((b, h, w) for b in blocks for h in heights for w in _divisors(size[1])), key=cost)


def _divisors(number: int) -> list[int]:
    return [d for d in range(REGISTERS - 1, 0, -1) if number % d == 0]


class Tiles(autotvm.task.DispatchContext):
    """While entered, gives TVM tiles of convolutions without a record of tuning, wherever those
    apply."""

    def _query_inside(self, target: Any, workload: Any) -> Any:
        """TVM asks with the operator's arguments; None leaves the answer to what is around."""
        if not workload or workload[0] != _TEMPLATE:
            return None
        with quiet():
            if not self._old_ctx.query(target, workload).is_fallback:
                return None
        with target:
            return _entity(workload[1:]) if get_simd_32bit_lanes() * 4 == _BYTES else None


def _entity(arguments: Sequence[Any]) -> Any | None:
    """AutoTVM's way to write a tile; None for a convolution whose shape is not known."""
    (_, data, dtype), (_, kernel, _), strides, padding, dilation, *_ = arguments
    if not all(isinstance(d, int) for d in (*data, *kernel)):
        return None
    _, inputs, *size = data[:4]
    outputs, _, *window = kernel[:4]
    blocks = None
    if len(data) == 5:  # in blocks of channels
        blocks = (data[4], kernel[5])
        inputs, outputs = inputs * blocks[0], outputs * blocks[1]
    top, left, bottom, right = get_pad_tuple(padding, window)
    axes = zip(size, (top + bottom, left + right), window, dilation, strides, strict=True)
    rows, pixels = ((s + a - (w - 1) * d - 1) // t + 1 for s, a, w, d, t in axes)
    flat = tuple(window) == (1, 1)
    lanes = _BYTES * 8 // tvm.DataType(dtype).bits
    made = tile((inputs, outputs), (size[0], size[1]), (rows, pixels), flat, lanes, blocks)
    split = {"tile_ic": (inputs, made.inputs), "tile_oc": (outputs, made.outputs)}
    split["tile_ow"] = pixels, made.pixels
    entity: list[Any] = [
        [name, "sp", [whole // part, part]] for name, (whole, part) in split.items()
    ]
    entity.append(["tile_oh", "ot", made.rows] if flat else ["unroll_kw", "ot", False])
    about = {"index": 0, "code_hash": None, "entity": entity}
    config = autotvm.task.space.ConfigEntity.from_json_dict(about)
    config.cost = math.inf  # what was tuned in another way goes before it
    return config
