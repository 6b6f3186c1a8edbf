"""Convolutions by the C interface that PyTorch gives to the models that it compiles, in kernels
that are linked with its library. A call through Python takes 30 us more."""

import math
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tir

from relascope.engine.cpu_kernels.convolutions import Options, way_of

_DTYPES = {"float32": 6, "float64": 7}  # PyTorch's numbers
_NO, _YES = (tir.const(number, "int32") for number in (0, 1))
_CPU = _NO, _NO  # the kind of device, and which
_MOST = 100  # integers that a statement needs: three shapes of five axes, their strides, options


def statement(kind: str, options: Options, one: Any, other: Any, out: Any) -> Any | None:
    """The statement that convolves buffers, or makes a weight's gradient, as
    `engine.cpu_kernels.convolutions` does it for constant shapes; None where that takes other calls
    of PyTorch. `kind` is as in `torch_convolution`."""
    extents = [d for buffer in (one, other, out) for d in buffer.shape]
    if not all(isinstance(d, tir.IntImm) and int(d) for d in extents):
        return None
    left, right, result = (tuple(int(d) for d in b.shape) for b in (one, other, out))
    strides, padding, dilation, transposed, more, groups = options
    of_weight = kind.endswith("weight")
    if kind == "conv2d":  # TVM's depthwise weights have channels in another shape
        right = result[1], left[1] // groups, *right[2:]
    weight, convolved = (result, left) if of_weight else (right, left if transposed else result)
    nbytes = math.prod(weight) * tvm.DataType(out.dtype).bits // 8
    way = way_of(options, weight, nbytes, convolved, of_weight=of_weight)
    if way not in ("", "folds"):
        return None

    calls = _Calls()
    given = [*map(calls.tensor, (one, other, out), (left, right, result))]
    where = [x for pair in (strides, padding, dilation) for x in calls.listed(pair)]
    found = [calls.numbers([0]) for _ in range(3)]
    if of_weight or way == "folds":
        operands = given if of_weight else [given[0], given[2], given[1]]
        # The gradient of the weight is wanted, or of the data: pairs of 32 bits.
        wanted = calls.listed([1 << 32 if of_weight else 1, 0])[0], 3
        about = *operands, 0, 0, *where, _NO, *calls.listed([0] * len(more)), groups, *wanted
        calls.run("cpu_convolution_backward", *about, *map(calls.address, found))
    else:
        turned = _YES if transposed else _NO
        about = given[0], given[1], 0, *where, turned, *calls.listed(more), groups
        calls.run("cpu_convolution", *about, calls.address(found[0]))
        del found[1:]
    made = [*map(calls.value, found)]
    calls.run("copy_", given[2], made[of_weight], _NO)
    for handle in (*given, *made):
        calls.run("delete_tensor_object", handle)
    return calls.builder.get()


class _Calls:
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

    def tensor(self, buffer: Any, shape: Sequence[int]) -> Any:
        """The handle of a tensor of this shape on a contiguous buffer."""
        sizes, rank = self.listed(shape)
        strides, _ = self.listed([math.prod(shape[i + 1 :]) for i in range(rank)])
        place, dtype = self.numbers([0]), tir.const(_DTYPES[buffer.dtype], "int32")
        data = tir.address_of(buffer[(0,) * len(buffer.shape)])
        about = data, rank, sizes, strides, 0, dtype, *_CPU
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
