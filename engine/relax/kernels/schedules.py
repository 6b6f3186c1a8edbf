"""Our schedules in Relax's pipeline for the CPU; see `engine.cpu_kernels.schedules`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from relascope.engine.building.options import UNDER_WAY
from relascope.engine.cpu_kernels import nan_kept
from relascope.engine.cpu_kernels.prefetch import read_ahead
from relascope.engine.cpu_kernels.schedules import Dialect, scheduled
from relascope.engine.cpu_kernels.vector_math import VectorMath

ARITHMETIC = VectorMath(tvm, tirx, "tirx", tirx.call_llvm_pure_intrin)


@tvm.transform.module_pass(opt_level=0, name="relascope.schedule_kernels")
def schedule_kernels(mod: Any, context: Any) -> Any:
    """Schedule every kernel of a module that has static shapes."""
    made = dict(mod.functions.items())
    kernels = [(n, f) for n, f in made.items() if isinstance(f, tirx.PrimFunc)]
    UNDER_WAY.kernels = len(kernels)
    for name, kernel in kernels:
        UNDER_WAY.kernel(str(name.name_hint))
        ours = not kernel.attrs.get("tirx.is_scheduled", False)
        done = scheduled(_DIALECT, kernel) if ours else None
        if done is not None:
            made[name] = read_ahead(_DIALECT, done.mod["main"]).with_attrs(dict(kernel.attrs))
    return tvm.IRModule(made, attrs=mod.attrs)


def _lowering() -> Any:
    """TVM's lowering of kernels, with `nan_kept`."""
    theirs, *finishing = tirx.get_tir_pipeline("s_tir")

    def kept(mod: Any, names: tuple[str, ...]) -> Any:
        for name, function in mod.functions.items():
            if function.attrs["target"].kind.name == "llvm":
                mod[name] = function.with_body(_nan_kept(function.body, names))
        return mod

    @tvm.transform.module_pass(opt_level=0, name="relascope.lowering")
    def run(mod: Any, context: Any) -> Any:
        UNDER_WAY.stage(f": lowering {len(mod.functions)} kernels")
        # TVM folds x != x to false and x == x to true, so these come first.
        mod = kept(theirs(kept(mod, ("NE", *nan_kept.NEGATED))), nan_kept.CHANGED)
        UNDER_WAY.stage(f": machine code of {len(mod.functions)} kernels")
        return mod

    return run, *finishing


LOWERING = "relascope"
"""The name of our lowering of kernels in TVM's registry."""
tirx.register_tir_pipeline(LOWERING, _lowering)


def _nan_kept(body: Any, names: tuple[str, ...]) -> Any:
    kinds = tuple(getattr(tirx, name, None) or getattr(tvm.ir, name) for name in names)
    intrinsic = tirx.call_llvm_pure_intrin
    known = nan_kept.marks(tirx, intrinsic)
    rules = [(kinds, nan_kept.rule(tirx, _DIALECT.walk, body, intrinsic, known))]
    if "NE" in names:
        places = nan_kept.places(tirx, _DIALECT.walk, tvm_ffi.structural_equal, body)
        rules.append(((tirx.Select, tirx.EQ, tirx.Sub), places))
        rules.append((tirx.Cast, partial(nan_kept.narrowed, tirx, intrinsic)))
    return tvm_ffi.structural_map(body, rules)


def _loops(body: Any, visit: Callable[[Any], Any | None]) -> Any:
    def instead(loop: Any) -> Any:
        made = visit(loop)
        return loop if made is None else made

    return tvm_ffi.structural_map(body, (tirx.For, instead))


def _put(value: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    known = {variable.__chandle__(): other for variable, other in pairs}
    return tvm_ffi.structural_map(value, (tvm.ir.Var, lambda v: known.get(v.__chandle__(), v)))


_DIALECT = Dialect(
    tvm, tirx, s_tir, tvm.ir.Call, "get_sblock", "source", tvm_ffi.structural_walk, _loops, _put
)
