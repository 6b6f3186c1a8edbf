"""Read and run small Relax programs with nothing but TVM, for reports of faults in passes.

This file is copied into reports; see `engine.faults.replay`."""

from typing import Any

import numpy as np
import tvm
from tvm import relax

from relascope.engine.faults.replay import Values, filled
from relascope.engine.relax.kernels import operators

operators.register()


def version() -> str:
    return f"TVM {tvm.__version__} with Relax"


def read(text: str, json: str, constants: Values) -> Any:
    """A typed module from TVMScript and constants for its arguments, else from TVM's JSON."""
    if not text:
        return typed(tvm.ir.load_json(json))
    mod = tvm.script.from_source(text)
    if constants:
        arrays = {name: tvm.runtime.tensor(value) for name, value in constants.items()}
        mod = relax.transform.BindParams("main", arrays)(mod)
    return typed(mod)


def typed(mod: Any) -> Any:
    return relax.transform.Normalize()(mod)


array = tvm.runtime.tensor


def check_formed(mod: Any) -> None:
    relax.analysis.well_formed(mod)


def signature(mod: Any) -> tuple[dict[str, str], str]:
    """The types of the arguments of "main", by name, and of its result."""
    main = mod["main"]
    return {str(p.name): str(p.ty) for p in main.params}, str(main.ret_ty)


class Run:
    def __init__(self, mod: Any, values: Values, target: str, optimised: bool = True) -> None:
        kind = tvm.target.Target(target)
        pipeline = (
            relax.get_default_pipeline(kind) if optimised else relax.get_pipeline("default_build")
        )
        lifted = relax.transform.LambdaLift()(mod)  # TVM builds no local functions
        with tvm.transform.PassContext(opt_level=3 if optimised else 0):
            built = tvm.compile(lifted, kind, relax_pipeline=pipeline)
        device = tvm.device(str(kind.kind.name).replace("llvm", "cpu"), 0)
        self._main = relax.VirtualMachine(built, device)["main"]
        kinds = {str(p.name): p.ty for p in mod["main"].params}
        shapes = {n: (_sizes(t), str(t.dtype)) for n, t in kinds.items()}
        given = filled(values, shapes)
        given |= {n: v.astype("bfloat16") for n, v in given.items() if shapes[n][1] == "bfloat16"}
        arrays = (np.asarray(v, order="C") for v in given.values())
        self._values = [tvm.runtime.tensor(array, device) for array in arrays]
        self._made: Any = None

    def __call__(self) -> None:
        self._made = self._main(*self._values)

    def results(self) -> list[np.ndarray]:
        several = isinstance(self._made, tvm.ir.Array | list | tuple)
        return [r.numpy() for r in (self._made if several else [self._made])]


def _sizes(kind: Any) -> tuple[int, ...]:
    """A tensor's shape; an open size is 1."""
    return tuple(int(d) if isinstance(d, tvm.tirx.IntImm) else 1 for d in kind.shape.values)


runner = Run
