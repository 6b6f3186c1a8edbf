"""A Relax function on a device of a fleet."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.support import tar

from relascope.engine.building.options import BuildOptions
from relascope.engine.measure.remote import Remote, refuse_library
from relascope.engine.relax.building import runtime
from relascope.engine.relax.building.targets import LIBRARIES, parse
from relascope.passes.relax.ir.program import RelaxProgram


class RemoteFunction(Remote):
    """See `engine.measure.remote.Remote`. On the virtual machine."""

    def __init__(
        self, program: RelaxProgram, options: BuildOptions, session: Any, name: str
    ) -> None:
        refuse_library(options.target, LIBRARIES)
        executable = runtime.executable(program, options, name)
        target = options.target, str(parse(options.target).kind.name)
        kinds = runtime.arguments_of(program.mod[name])
        super().__init__(session, executable, name, target, tar.tar, kinds)

    def start(self, there: Any) -> None:
        self._machine = relax.VirtualMachine(there, self.device)

    def results(self, arrays: Mapping[str, np.ndarray]) -> list[Any]:
        given = [tvm.runtime.tensor(array, self.device) for array in arrays.values()]
        self._machine.set_input("main", *given)
        self._machine.invoke_stateful("main")
        return runtime.flat(self._machine.get_outputs("main"))

    def timer(self, **options: Any) -> Any:
        return self._machine.time_evaluator("invoke_stateful", self.device, **options)("main")
