"""A Relay function on a device of a fleet."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from relascope.engine.building.options import BuildOptions
from relascope.engine.measure.remote import Remote, refuse_library
from relascope.engine.relay.building import runtime
from relascope.engine.relay.building.targets import LIBRARIES, parse
from relascope.engine.relay.draw.to_graph import tensor_types
from relascope.passes.relay.ir.program import RelayProgram

# The runtime has loaded the TVM that has Relay.
import tvm  # isort: skip
from tvm.contrib import graph_executor, tar  # isort: skip


class RemoteFunction(Remote):
    """See `engine.measure.remote.Remote`. On the graph executor."""

    def __init__(
        self, program: RelayProgram, options: BuildOptions, session: Any, name: str
    ) -> None:
        refuse_library(options.target, LIBRARIES)
        library, function = runtime.library(program, options, name), program.mod[name]
        self._outputs = len(tensor_types(function.ret_type))
        nodes = json.loads(library.get_graph_json())["nodes"]
        given = {n["name"] for n in nodes if n["op"] == "null"}
        kinds = {n: t for n, t in runtime.arguments_of(function).items() if n in given}
        target = options.target, str(parse(options.target).kind)
        super().__init__(session, library, name, target, tar.tar, kinds)

    def start(self, there: Any) -> None:
        self._module = graph_executor.GraphModule(there["default"](self.device))

    def results(self, arrays: Mapping[str, np.ndarray]) -> list[Any]:
        for name, array in arrays.items():
            self._module.set_input(name, tvm.nd.array(array, self.device))
        self._module.run()
        return [self._module.get_output(i) for i in range(self._outputs)]

    def timer(self, **options: Any) -> Any:
        return self._module.module.time_evaluator("run", self.device, **options)()
