"""Tiles of convolutions in Relay's build for the CPU.

TVM's kernel (`tvm/topi/x86/conv2d_avx_common.py`, `conv2d_avx_1x1.py`) sums some pixels of a row
times a block of channels at a time: its tile. Untuned, that is twice what 16 registers hold. Here a
tile is chosen that fits; a tuning record takes precedence.
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
"""Bytes of a register with AVX2, of which there are 16. AVX-512 has twice as many, and wider ones:
TVM's own tiles fit."""

_UNDER_WAY = 10
"""Sums that two units with a latency of 5 cycles keep under way; a tile of fewer has to wait."""

_VECTORS = (2, 4, 1, 1 / 2, 1 / 4)
"""Vectors in a block of channels, a power of two for LLVM; the first wins a tie."""


@dataclass(frozen=True)
class ConvolutionTile:
    """The part of the result that is summed in registers: `pixels` in each of `rows`, times
    `outputs` channels. `inputs` channels are summed over before the next pixel of the kernel."""

    inputs: int
    outputs: int
    rows: int
    pixels: int


def tile(
    channels: tuple[int, int],
    read: tuple[int, int],
    written: tuple[int, int],
    flat: bool,
    lanes: int,
    blocks: tuple[int, int] | None = None,
) -> ConvolutionTile:
    """The tile for a convolution from `read` rows and pixels to `written` ones. `flat` says that
    the kernel is one pixel: then a tile may have several rows. `lanes` are elements in a
    register; `blocks` are the blocks of channels, if the layout has them already."""
    given, wanted = blocks or (None, None)
    outputs, rows, pixels = _best(channels[1], written, flat, lanes, wanted)
    # What is read was most likely made by a convolution like this one, in its blocks.
    inputs = given or _best(channels[0], read, flat, lanes, None)[0]
    return ConvolutionTile(inputs, outputs, rows, pixels)


def _best(
    channels: int, size: tuple[int, int], flat: bool, lanes: int, block: int | None
) -> tuple[int, int, int]:
    """Channels, rows and pixels of the tile with the fewest cycles an element."""
    fitting = [int(v * lanes) for v in _VECTORS if channels % (v * lanes) == 0]
    blocks = [block] if block else fitting or [max(d for d in range(1, lanes) if channels % d == 0)]
    heights = _divisors(size[0])[::-1] if flat else [1]  # larger kernels read rows one by one

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
    """While entered, gives TVM a tile for each convolution without a tuning record, if a tile
    applies."""

    def _query_inside(self, target: Any, workload: Any) -> Any:
        """TVM asks with the operator's arguments; None leaves the answer to the outer context."""
        if not workload or workload[0] != _TEMPLATE:
            return None
        with quiet():
            if not self._old_ctx.query(target, workload).is_fallback:
                return None
        with target:
            return _entity(workload[1:]) if get_simd_32bit_lanes() * 4 == _BYTES else None


def _entity(arguments: Sequence[Any]) -> Any | None:
    """A tile as AutoTVM writes it; None for a convolution of unknown shape."""
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
    config.cost = math.inf  # anything tuned takes precedence
    return config
