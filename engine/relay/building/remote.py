"""A Relay function on a device of a fleet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from relascope.engine.building import executables
from relascope.engine.building.options import BuildOptions
from relascope.engine.measure.remote import refuse_library, understood, upload
from relascope.engine.protocol.target_text import gpu_index
from relascope.engine.relay.building import runtime
from relascope.engine.relay.building.targets import LIBRARIES, parse
from relascope.passes.relay.ir.program import RelayProgram

# The runtime has loaded the TVM that has Relay.
import tvm  # isort: skip
from tvm.contrib import graph_executor, tar  # isort: skip


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
        self, program: RelayProgram, options: BuildOptions, session: Any, name: str
    ) -> None:
        library = runtime.library(program, options, name)
        function = program.mod[name]
        self.outputs = runtime.tensor_types(function.ret_type)
        nodes = json.loads(library.get_graph_json())["nodes"]
        given = {n["name"] for n in nodes if n["op"] == "null"}
        self.used = tuple(p.name_hint for p in function.params if p.name_hint in given)
        self._kinds = {p.name_hint: runtime.tensor_types(p.checked_type) for p in function.params}
        self._name = name
        there = upload(session, library, name, tar.tar)
        with understood(name):
            kind = str(parse(options.target).kind)
            self._device = session.device(kind, gpu_index(options.target))
            self._module = graph_executor.GraphModule(there["default"](self._device))

    def held(self, values: Mapping[str, torch.Tensor]) -> executables.Held | None:
        """Not known of a device elsewhere."""
        return None

    def run(
        self, values: Mapping[str, torch.Tensor], keep: Iterable[str] = ()
    ) -> tuple[torch.Tensor, ...]:
        """Run once there; the results come back."""
        with understood(self._name):
            for name in self.used:
                value = executables.given(values, name)
                executables.check_type(value, name, self._kinds[name][0])
                array = tvm.nd.array(value.detach().cpu().contiguous().numpy(), self._device)
                self._module.set_input(name, array)
            self._module.run()
            return tuple(
                torch.from_numpy(self._module.get_output(i).numpy())
                for i in range(len(self.outputs))
            )

    def seconds(self, repeats: int) -> tuple[float, ...]:
        """Times of calls there."""
        timed = self._module.module.time_evaluator(
            "run", self._device, number=1, repeat=repeats, min_repeat_ms=10
        )
        return tuple(float(s) for s in timed().results)
