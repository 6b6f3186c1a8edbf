"""Convolutions by the C interface that PyTorch gives to the models that it compiles, in kernels
that are linked with its library: a call through Python takes longer."""

import math
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tir

from relascope.engine.cpu_kernels.convolutions import PIXELS, Options, way_of

_DTYPES = {"float32": 6, "float64": 7}  # PyTorch's numbers
_NO, _YES = (tir.const(number, "int32") for number in (0, 1))
_CPU = _NO, _NO  # the kind of device, and which
_MOST = 100  # integers that a statement needs: three shapes of five axes, their strides, options


def statement(kind: str, options: Options, left: Any, right: Any, out: Any) -> Any | None:
    """The statement that convolves buffers, or makes a weight's gradient, as
    `engine.cpu_kernels.convolutions` does it for constant shapes; None where that takes other calls
    of PyTorch. `kind` is as in `torch_convolution`."""
    buffers = left, right, out
    if not all(isinstance(d, tir.IntImm) and int(d) for b in buffers for d in b.shape):
        return None
    one, other, result = shapes = [tuple(int(d) for d in b.shape) for b in buffers]
    strides, padding, dilation, transposed, more, groups = options
    of_weight = kind.endswith("weight")
    if kind == "conv2d":  # TVM's depthwise weights have channels in another shape
        other = shapes[1] = result[1], one[1] // groups, *other[2:]
    weight, convolved = (result, one) if of_weight else (other, one if transposed else result)
    nbytes = math.prod(weight) * tvm.DataType(out.dtype).bits // 8
    way = way_of(options, weight, nbytes, convolved, of_weight=of_weight)
    calls = _TorchCalls()
    if way == "pointwise" and not of_weight:
        if (pixels := math.prod(result[2:])) < PIXELS or one[1] == result[1] == 1:
            return None
        # The weight is the same matrix for each image.
        turned = (0, 1, result[1]) if transposed else (0, one[1], 1)
        matrix = calls.tensor(right, (one[0], result[1], one[1]), turned)
        data, made = (calls.tensor(b, (*s[:2], pixels)) for b, s in ((left, one), (out, result)))
        calls.run("cpu_bmm_out", made, matrix, data)
        return calls.freed(made, matrix, data)
    if way not in ("", "folds"):
        return None

    given = [*map(calls.tensor, buffers, shapes)]
    where = [x for pair in (strides, padding, dilation) for x in calls.listed(pair)]
    backward = of_weight or way == "folds"
    found = [calls.numbers([0]) for _ in range(3 if backward else 1)]
    if backward:
        operands = given if of_weight else [given[0], given[2], given[1]]
        # The gradient of the weight is wanted, or of the data: pairs of 32 bits.
        wanted = calls.listed([1 << 32 if of_weight else 1, 0])[0], 3
        about = *operands, 0, 0, *where, _NO, *calls.listed([0] * len(more)), groups, *wanted
        calls.run("cpu_convolution_backward", *about, *map(calls.address, found))
    else:
        turned = _YES if transposed else _NO
        about = given[0], given[1], 0, *where, turned, *calls.listed(more), groups
        calls.run("cpu_convolution", *about, calls.address(found[0]))
    fresh = [*map(calls.value, found)]
    calls.run("copy_", given[2], fresh[of_weight], _NO)
    return calls.freed(*given, *fresh)


class _TorchCalls:
    """A statement of calls, with the integers that they read and write in memory."""

    def __init__(self) -> None:
        self.builder = tir.ir_builder.create()
        self._memory = self.builder.allocate("int64", (_MOST,), "numbers", scope="local")
        self._status, self._used = 0, 1

    def numbers(self, values: Sequence[int]) -> int:
        """The place of some integers, which the statement writes."""
        place, self._used = self._used, self._used + len(values)
        for index, value in enumerate(values, place):
            self._memory[index] = tir.const(value, "int64")
        return place

    def value(self, place: int) -> Any:
        return self._memory[place]

    def address(self, place: int) -> Any:
        return tir.address_of(self.value(place))

    def listed(self, values: Sequence[int]) -> tuple[Any, int]:
        return self.address(self.numbers(values)), len(values)

    def tensor(self, buffer: Any, shape: Sequence[int], strides: Sequence[int] = ()) -> Any:
        """The handle of a tensor of this shape on a buffer, contiguous without `strides`."""
        sizes, rank = self.listed(shape)
        steps, _ = self.listed(strides or [math.prod(shape[i + 1 :]) for i in range(rank)])
        place, dtype = self.numbers([0]), tir.const(_DTYPES[buffer.dtype], "int32")
        data = tir.address_of(buffer[(0,) * len(buffer.shape)])
        about = data, rank, sizes, steps, 0, dtype, *_CPU
        self.run("create_tensor_from_blob", *about, self.address(place))
        return self.value(place)

    def run(self, name: str, *arguments: Any) -> None:
        """Call a function of the interface; numbers are passed as 64 bits."""
        given = [tir.const(a, "int64") if isinstance(a, int) else a for a in arguments]
        call = tir.call_extern("int32", f"aoti_torch_{name}", *given)
        self._memory[self._status] = tir.Cast("int64", call)  # TVM can leave out asserts
        message = tir.StringImm(f"PyTorch's {name} failed; its error is in the log.")
        right = self.value(self._status) == 0
        self.builder.emit(tir.AssertStmt(right, message, tir.Evaluate(0)))

    def freed(self, *handles: Any) -> Any:
        """The whole statement, which gives up these handles at its end."""
        for handle in handles:
            self.run("delete_tensor_object", handle)
        return self.builder.get()
