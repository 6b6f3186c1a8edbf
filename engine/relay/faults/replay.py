"""Read and run small Relay programs with nothing but TVM, for reports of faults in passes.

This file is copied into reports; see `engine.faults.replay`.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from relascope.engine.faults.replay import Values, filled


def _has_relay() -> bool:
    spec = importlib.util.find_spec("tvm")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return any((Path(p) / "relay" / "__init__.py").is_file() for p in places)


if not _has_relay():  # take the one inside bitblas
    from relascope.engine.relay.tvm.boot import boot

    boot()

import tvm
from tvm import relay
from tvm.contrib import graph_executor

from relascope.engine.relay.building.machine import VmModule, has_control_flow
from relascope.engine.relay.kernels import erf
from relascope.passes.relay.training import weight_gradient

erf.register()
weight_gradient.register()


def version() -> str:
    return f"TVM {tvm.__version__} with Relay"


def read(text: str, json: str, constants: Values) -> tvm.IRModule:
    """A typed module from its text and constants for its arguments, or from TVM's JSON if there is
    no text."""
    if not text:
        return typed(tvm.ir.load_json(json))
    mod = tvm.relay.parse(text)
    if constants:
        arrays = {name: tvm.nd.array(value) for name, value in constants.items()}
        mod["main"] = relay.build_module.bind_params_by_name(mod["main"], arrays)
    return typed(mod)


typed = relay.transform.InferType()
array = tvm.nd.array


def check_formed(mod: tvm.IRModule) -> None:
    main = mod["main"]
    if free := relay.analysis.free_vars(main):
        raise ValueError(f"{free[0].name_hint} is read but bound nowhere")
    if not relay.analysis.well_formed(main):
        raise ValueError("a variable is bound twice")
    if main._checked_type_ is None:
        raise ValueError("it has no types: run relay.transform.InferType")


def signature(mod: tvm.IRModule) -> tuple[dict[str, str], str]:
    """The types of the arguments of "main", by name, and of its result."""
    main = mod["main"]
    types = {str(p.name_hint): str(p.checked_type) for p in main.params}
    return types, str(main.checked_type.ret_type)


class Run:
    def __init__(
        self, mod: tvm.IRModule, values: Values, target: str, optimised: bool = True
    ) -> None:
        mod = relay.transform.InferType()(mod)
        kinds = {str(p.name_hint): p.checked_type for p in mod["main"].params}
        shapes = {n: (tuple(int(d) for d in t.shape), str(t.dtype)) for n, t in kinds.items()}
        # SimplifyExpr runs at level 0, too, and fails on its own result for `x + x`.
        disabled = [] if optimised else ["SimplifyExpr"]
        device = tvm.device(target.split()[0].replace("llvm", "cpu"), 0)
        given = {n: array(np.asarray(v, order="C")) for n, v in filled(values, shapes).items()}
        level, needed = 3 if optimised else 0, ["Legalize"]  # see `weight_gradient`
        with tvm.transform.PassContext(level, needed, disabled):
            if has_control_flow(mod):
                machine = VmModule(mod, tvm.target.Target(target), device)
                self._run = lambda: machine([*given.values()])
                return
            library = relay.build(mod, target=target)
        module = graph_executor.GraphModule(library["default"](device))
        for name, value in given.items():
            if module.get_input_index(name) >= 0:  # else no result depends on it
                module.set_input(name, value)

        def run() -> list[Any]:
            module.run()
            return [module.get_output(i) for i in range(module.get_num_outputs())]

        self._run = run

    def __call__(self) -> None:
        self._made = self._run()

    def results(self) -> list[np.ndarray]:
        return [one.numpy() for one in self._made]


runner = Run
