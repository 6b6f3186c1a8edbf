"""A built function, recorded as one CUDA graph by PyTorch and launched as a whole.

A processor takes longer to launch small kernels one by one than a GPU takes to run them. PyTorch
records all kernels that a function queues on its stream, its own libraries' and TVM's.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

import torch

from relascope.core.errors import EngineError, lines_of
from relascope.core.graph import TensorType
from relascope.engine.building.executables import Compiled, OwnMemory, Tensors, given, ready

GRAPHS = "-graphs=cuda"
"""A CUDA target's option to record each function once, and launch it as a whole."""

ON_GPU = (("cuda",), "CUDA graphs need an NVIDIA GPU.")
"""See `target_text.refuse_elsewhere`."""

_WARM_UP = 2


class OnDevice(Compiled, Protocol):
    """A function built for a GPU, with the types of its arguments."""

    arguments: dict[str, TensorType]


class Recorded(Compiled):
    """A function as a CUDA graph, recorded at the first run, and again when an argument in `keep`
    moves or one of open size changes its size. Other arguments are copied in, results out."""

    def __init__(self, function: OnDevice, target: str) -> None:
        self.function, self.target, self.used = function, target, function.used
        self._recorded: object = None

    def run(self, values: Tensors, keep: Iterable[str] = ()) -> tuple[torch.Tensor, ...]:
        kept = tuple(name for name in self.used if name in frozenset(keep))
        inputs = {
            name: ready(values, name, self.function.arguments[name])
            for name in self.used
            if name not in kept
        }
        fixed = {name: given(values, name).data_ptr() for name in kept}
        key = fixed, {name: value.shape for name, value in inputs.items()}
        if key != self._recorded:
            self._inputs = {name: value.clone() for name, value in inputs.items()}
            arguments = {**values, **self._inputs}
            try:
                self._replay, self._results = record(lambda: self.function.run(arguments, kept))
            except RuntimeError as error:
                message = f"This program cannot run as a CUDA graph: {lines_of(error)[0]}"
                raise EngineError("target", message, self.target, f"Leave out {GRAPHS}.") from error
            self._recorded = key
        for name, value in inputs.items():
            self._inputs[name].copy_(value)
        self._replay()
        return tuple(result.clone() for result in self._results)

    def own_memory(self, values: Tensors) -> OwnMemory | None:
        found = self.function.own_memory(values)
        # The graph uses it at each launch.
        return found and replace(found, pools={id(self): found.peak})


def record(
    run: Callable[[], tuple[torch.Tensor, ...]],
) -> tuple[Callable[[], None], tuple[torch.Tensor, ...]]:
    """Record what a function queues: a function that queues it again, and the results that this
    writes. Raises RuntimeError if it waits for the GPU, or takes more memory than before."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):  # libraries choose kernels, and TVM allocates memory
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Without this, the next graph would use this one's workspace of cuBLAS, also after its end.
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.graph(graph):
        results = run()
    torch._C._cuda_clearCublasWorkspaces()
    return graph.replay, results


def as_target_says(function: OnDevice, target: str) -> Compiled:
    return Recorded(function, target) if GRAPHS in target.split() else function
