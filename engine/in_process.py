"""A live PyTorch module as functions that TVM built; what `engine.dispatch` runs, for every IR.

Built on first use: one for inference, and a forward and a backward per set of wanted gradients.
"""

import importlib
import importlib.util
import sys
from collections.abc import Collection, Mapping
from typing import Any

import torch

from relascope.core.errors import EngineError, refusing
from relascope.engine.building.devices import default_target
from relascope.engine.building.executables import Executable
from relascope.engine.building.explain import explain
from relascope.engine.building.threads import use_torch_threads
from relascope.engine.protocol.session import silent
from relascope.engine.pytorch.model import Model
from relascope.engine.registry import REGISTRY
from relascope.engine.server.backend import Backend
from relascope.engine.server.unbuilt import forward_kernels
from relascope.passes.catalogue import default_pipeline, info
from relascope.passes.cuts.cut import Joint, cut
from relascope.passes.pipeline import Pipeline


def load_engine(ir: str) -> Backend:
    """The engine of one IR, in this process. Raises EngineError of kind "engine" where its TVM is
    not installed, or another is imported already."""
    if ir == "relay":
        from relascope.engine.relay.session import RelayBackend

        return RelayBackend(shared=True)
    if "tvm" in sys.modules and importlib.util.find_spec("tvm.relay") is not None:
        message = "A TVM with Relay is already imported, and a process can hold only one TVM."
        hint = "Dispatch all modules of a process through the same engine."
        raise EngineError("engine", message, str(sys.modules["tvm"].__file__), hint)
    if importlib.util.find_spec("tvm") is None:
        hint = "Install the Python package apache-tvm, which requirements.txt lists."
        raise EngineError("engine", "The Relax engine's TVM is not installed.", sys.prefix, hint)
    from relascope.engine.relax.session import RelaxBackend

    return RelaxBackend()


class LiveProgram:
    """One trace of a module. `captures` names the strategy that picks the captures, and its budget;
    `target` is TVM's target string, where None takes the device's own, on the CPU with PyTorch's
    BLAS. Raises EngineError of kind "operator" for what the frontend cannot import, and "target"
    where TVM cannot run on the model's device."""

    def __init__(
        self,
        backend: Backend,
        model: Model,
        captures: tuple[str, float | int | None],
        target: str | None,
    ) -> None:
        self._backend, self._captures = backend, captures
        self._no_gradient = model.no_gradient
        use_torch_threads()
        self._target = target or default_target(backend.describe().targets, model.device)
        with model.flat.naming_parts(model.module):
            self.program = backend.import_model(model, silent)
        self.masks = self._run(REGISTRY[backend.ir].masks).masks
        self._joint: Any = None
        self._forward: Executable | None = None
        self._steps: dict[frozenset[str], Executable] = {}

    def forward(self, values: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        if self._forward is None:
            program = self._run(REGISTRY[self._backend.ir].live)
            self._forward = self._backend.build(program, None, self._target)
        return self._forward.forward(values)[0]

    def joint(self) -> Any:
        """The program with all its gradients. Raises EngineError of kind "pass" where an operator
        has no gradient in this engine, and "operator" where PyTorch's cannot be reproduced."""
        if self._no_gradient is not None:
            raise self._no_gradient
        if self._joint is None:
            self._joint = self._run(str(default_pipeline(self._backend.ir, training=True)))
        return self._joint

    def step(self, wanted: Collection[str]) -> Any:
        """The forward and backward that give the gradients of the arguments named."""
        key = frozenset(wanted)
        if key not in self._steps:
            name = f"relascope.passes.{self._backend.ir}.training.gradient"
            joint = importlib.import_module(name).keep_gradients(self.joint(), key)
            graph, exprs = self._backend.to_graph(joint)
            seen = Joint(graph, forward_kernels(self._backend, joint, graph, exprs))
            strategy, budget = self._captures
            where, hint = f"captures={strategy!r}, {budget=}", "Give another budget or strategy."
            with refusing("usage", "The captures cannot be chosen: {}.", where, hint):
                captures = cut(seen, strategy, budget).ids
            split = self._backend.split(joint, graph, exprs, captures)
            self._steps[key] = self._backend.build(joint, split, self._target)
        return self._steps[key]

    def _run(self, pipeline: str) -> Any:
        program = self.program
        for step in Pipeline.parse(pipeline):
            try:
                program = info(self._backend.ir, step).applied(program, step)
            except EngineError:
                raise
            except Exception as error:
                raise EngineError("pass", explain(error, "step").message, step.name) from error
        return program
