"""A Relax function on a device of a fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.support import tar

from relascope.engine.building import executables
from relascope.engine.building.options import BuildOptions
from relascope.engine.measure.remote import refuse_library, understood, upload
from relascope.engine.protocol.target_text import gpu_index
from relascope.engine.relax.building import runtime
from relascope.engine.relax.building.targets import LIBRARIES, parse
from relascope.engine.relax.draw.to_graph import tensor_types
from relascope.passes.relax.ir.program import RelaxProgram


def check(target: str) -> None:
    """Refuse a target whose kernels call what a device of a fleet does not have.

    Raises:
        EngineError: kind "target".
    """
    refuse_library(target, LIBRARIES)


class RemoteFunction:
    """See `engine.measure.remote.Remote`.

    Args:
        session: TVM's, on the device.
        name: of the function in its module.
    """

    def __init__(
        self, program: RelaxProgram, options: BuildOptions, session: Any, name: str
    ) -> None:
        executable = runtime.executable(program, options, name)
        self._kinds = {str(p.name): tensor_types(p.ty)[0] for p in program.mod[name].params}
        self.used = tuple(self._kinds)
        self._name = name
        there = upload(session, executable, name, tar.tar)
        with understood(name):
            kind = str(parse(options.target).kind.name)
            self._device = session.device(
                "cpu" if kind == "llvm" else kind, gpu_index(options.target)
            )
            self._machine = relax.VirtualMachine(there, self._device)

    def held(self, values: Mapping[str, torch.Tensor]) -> executables.Held | None:
        """Not known of a device elsewhere."""
        return None

    def run(
        self, values: Mapping[str, torch.Tensor], keep: Iterable[str] = ()
    ) -> tuple[torch.Tensor, ...]:
        """Run once there; the results come back."""
        with understood(self._name):
            arrays = []
            for name, kind in self._kinds.items():
                value = executables.given(values, name)
                executables.check_type(value, name, kind)
                arrays.append(tvm.runtime.tensor(value.detach().cpu().numpy(), self._device))
            self._machine.set_input("main", *arrays)
            self._machine.invoke_stateful("main")
            made = self._machine.get_outputs("main")
            results = list(made) if isinstance(made, tvm.ir.Array | list | tuple) else [made]
            return tuple(torch.from_numpy(r.numpy()) for r in results)

    def seconds(self, repeats: int) -> tuple[float, ...]:
        """Times of calls there."""
        timed = self._machine.time_evaluator(
            "invoke_stateful", self._device, number=1, repeat=repeats, min_repeat_ms=10
        )
        return tuple(float(s) for s in timed("main").results)
