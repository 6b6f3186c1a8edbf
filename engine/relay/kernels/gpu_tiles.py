"""Tiles of convolutions and batched products in Relay's build for a GPU, if they are not tuned.

TVM's templates (`tvm/topi/cuda/conv2d_direct.py` and its neighbours) then give a block one thread
and one element. Here a tile keeps the GPU busy and reads little; a tuning record takes precedence.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import autotvm
from tvm.topi.nn.utils import get_pad_tuple

from relascope.engine.relay.kernels.blas import FLOATS
from relascope.engine.relay.tvm.quiet import quiet

_WARP = 32
_MOST_THREADS = 256
_MOST_DEEP = 64
"""The most threads along a block's third axis, that of channels: CUDA's limit."""
_BUSY = 108 * 256
"""Threads that keep a GPU busy: 256 on each of an A100's 108 processors, as some await memory."""
_MOST_INNER = 16
"""Elements that a thread sums up in registers."""
_SHARED = 32 * 1024
_STEP = 8
"""The most channels that a block reads at a time."""
_FILL = 4.0
"""The cost of a read from memory, relative to one from a block's shared memory."""

Axes = tuple[int, int, int]
"""Numbers for channels, rows and columns."""


@dataclass(frozen=True)
class GpuTile:
    """What a block computes: `threads` along each axis, `inner` elements in each thread, reading
    `channels` at a time."""

    threads: Axes
    inner: Axes
    channels: int


@dataclass(frozen=True)
class Convolution:
    """A convolution, as tiles see it. `batch` is images times groups; `result` are the result's
    channels per group, rows and columns; `inputs` are the channels summed over for each; `apart`
    says that it is depthwise."""

    batch: int
    result: Axes
    inputs: int
    window: tuple[int, int]
    strides: tuple[int, int]
    apart: bool = False


def tile(convolution: Convolution) -> GpuTile:
    """The tile with the least cost: reads per product, weighted by how much of the GPU is idle.
    Raises ValueError if none fits into a block's shared memory."""
    options = [_splits(extent) for extent in convolution.result]
    best: tuple[float, GpuTile] | None = None
    for parts in itertools.product(*options):
        (tf, fi), (ty, yi), (tx, xi) = parts
        threads, inner = tf * ty * tx, fi * yi * xi
        if threads > _MOST_THREADS or tf > _MOST_DEEP or inner > _MOST_INNER:
            continue
        channels, filled = _filled(convolution, (tf * fi, ty * yi, tx * xi))
        if not channels:
            continue
        outputs = threads * inner
        blocks = convolution.batch * math.prod(convolution.result) / outputs
        reads = 1.0 if convolution.apart else 1 / (yi * xi) + 1 / fi
        idle = math.ceil(threads / _WARP) * _WARP / threads * max(1.0, _BUSY / (blocks * threads))
        products = outputs * channels * math.prod(convolution.window)
        cost = (1 + reads + _FILL * filled / products) * idle
        if best is None or cost < best[0]:
            best = cost, GpuTile((tf, ty, tx), (fi, yi, xi), channels)
    if best is None:
        raise ValueError("no tile fits")
    return best[1]


def _filled(one: Convolution, block: Axes) -> tuple[int, int]:
    """How many channels a block can read at a time, and how many elements that are; 0 for none."""
    (down, across), (above, beside) = one.window, one.strides
    rows, columns = (block[1] - 1) * above + down, (block[2] - 1) * beside + across
    for channels in _divisors(1 if one.apart else one.inputs, _STEP)[::-1]:
        pictures = block[0] if one.apart else channels
        elements = pictures * rows * columns + block[0] * channels * down * across
        if elements * 4 <= _SHARED:
            return channels, elements
    return 0, 0


def _splits(extent: int) -> list[tuple[int, int]]:
    """Threads along an axis, and elements of each."""
    return [
        (threads, inner)
        for inner in _divisors(extent, 8)
        for threads in _divisors(extent // inner, _MOST_THREADS)
    ]


def _divisors(number: int, most: int) -> list[int]:
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]


class GpuTiles(autotvm.task.DispatchContext):
    """While entered, gives TVM a tile for each template that is not tuned."""

    def _query_inside(self, target: Any, workload: Any) -> Any:
        """TVM asks with the operator's arguments; None leaves the answer to the outer context."""
        make = _TEMPLATES.get(workload[0]) if workload else None
        if make is None or (
            # the library has it, which TVM would prefer to a template with a tile
            make is _batch_matmul and "cublas" in target.libs and workload[1][2] in FLOATS
        ):
            return None
        with quiet():
            if not self._old_ctx.query(target, workload).is_fallback:
                return None
        try:
            entity = make(workload[1:])
        except (TypeError, ValueError):  # its shapes are not known, or none fits
            return None
        unroll = "auto_unroll_max_step"
        steps = 64 if workload[0] == "batch_matmul.cuda" else 512
        entity += [(unroll, "ot", steps), ("unroll_explicit", "ot", 0)]
        about = {"index": 0, "code_hash": None, "entity": entity}
        config = autotvm.task.space.ConfigEntity.from_json_dict(about)
        config.cost = math.inf  # anything tuned takes precedence
        return config


Entity = list[tuple[str, str, Any]]
"""A tile as AutoTVM writes it: a name, "sp" for how an axis is split, the sizes of the parts."""


def _spatial(made: GpuTile) -> Entity:
    names = zip(("tile_f", "tile_y", "tile_x"), made.threads, made.inner, strict=True)
    return [(name, "sp", [-1, 1, threads, inner]) for name, threads, inner in names]


def _summed(made: GpuTile, window: Sequence[int]) -> Entity:
    sizes = zip(("tile_rc", "tile_ry", "tile_rx"), (made.channels, *window), strict=True)
    return [(name, "sp", [-1, size]) for name, size in sizes]


def _conv2d(arguments: Sequence[Any]) -> Entity:
    one = _read(arguments)
    made = tile(one)
    return _spatial(made) + _summed(made, one.window)


def _depthwise(arguments: Sequence[Any]) -> Entity:
    (_, (batch, channels, *_), _), (_, (_, each, *_), _) = arguments[:2]
    one = _read(arguments, apart=True)
    whole = Convolution(batch, (channels * each, *one.result[1:]), 1, one.window, one.strides, True)
    return _spatial(tile(whole))


def _grouped(arguments: Sequence[Any]) -> Entity:
    one = _read(arguments, groups=int(arguments[5]))
    made = tile(one)
    rest: Entity = [("tile_n", "sp", [-1, 1, 1, 1]), ("tile_g", "sp", [-1, 1])]
    return [*rest, *_spatial(made), *_summed(made, one.window), ("fuse_yx", "ot", 0)]


def _transposed(arguments: Sequence[Any]) -> Entity:
    (_, (batch, inputs, *size), _), (_, (_, outputs, *window), _), strides, padding = arguments[:4]
    more = arguments[5]
    top, left, bottom, right = get_pad_tuple(padding, window)
    given = zip(size, strides, window, (top + bottom, left + right), more, strict=True)
    rows, columns = ((s - 1) * t + w - p + m for s, t, w, p, m in given)
    made = tile(Convolution(batch, (outputs, rows, columns), inputs, (1, 1), (1, 1)))
    rest: Entity = [("tile_n", "sp", [-1, 1, 1, 1]), ("tile_rc", "sp", [-1, 1, made.channels])]
    return [*rest, *_spatial(made), ("fuse_yx", "ot", 0)]


def _batch_matmul(arguments: Sequence[Any]) -> Entity:
    batch, rows, columns = arguments[2]
    inner = arguments[0][1][1 if arguments[4] else 2]
    one = Convolution(batch, (1, rows, columns), inner, (1, 1), (1, 1))
    parts = itertools.product(_parts(rows), _parts(columns))
    tiles = [(ty, tx, yi, xi) for (ty, yi), (tx, xi) in parts]
    ty, tx, yi, xi = min(tiles, key=lambda p: _product_cost(one, *p))
    step = _divisors(inner, 16)[-1]
    splits = {"tile_y": [-1, ty, yi], "tile_x": [-1, tx, xi], "tile_k": [-1, step]}
    return [(name, "sp", sizes) for name, sizes in splits.items()]


def _parts(extent: int) -> list[tuple[int, int]]:
    """Threads along an axis and elements of each, which together may reach beyond its end."""
    return [(t, i) for t in (4, 8, 16) for i in (1, 2, 4) if t * i < 2 * extent or t == 4]


def _product_cost(one: Convolution, ty: int, tx: int, yi: int, xi: int) -> float:
    _, rows, columns = one.result
    blocks = one.batch * math.ceil(rows / (ty * yi)) * math.ceil(columns / (tx * xi))
    threads = ty * tx
    done = blocks * threads * yi * xi / (one.batch * rows * columns)
    if threads < _WARP:
        return math.inf
    return (1 + 1 / yi + 1 / xi) * done * max(1.0, _BUSY / (blocks * threads))


def _read(arguments: Sequence[Any], groups: int = 1, apart: bool = False) -> Convolution:
    """A convolution from TVM's arguments."""
    (_, data, _), (_, kernel, _), strides, padding, dilation, *_ = arguments
    batch, _, *size = data
    outputs, inputs, *window = kernel
    top, left, bottom, right = get_pad_tuple(padding, window)
    axes = zip(size, (top + bottom, left + right), window, dilation, strides, strict=True)
    rows, columns = ((s + p - (w - 1) * d - 1) // t + 1 for s, p, w, d, t in axes)
    made = outputs // groups, rows, columns
    summed = 1 if apart else inputs
    return Convolution(batch * groups, made, summed, tuple(window), tuple(strides), apart)


_TEMPLATES: dict[str, Callable[[Sequence[Any]], Entity]] = {
    "conv2d_nchw.cuda": _conv2d,
    "depthwise_conv2d_nchw.cuda": _depthwise,
    "group_conv2d_nchw.cuda": _grouped,
    "conv2d_transpose_nchw.cuda": _transposed,
    "batch_matmul.cuda": _batch_matmul,
}
