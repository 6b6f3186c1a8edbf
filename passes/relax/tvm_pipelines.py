"""Relax's own pipelines, read from the installed TVM, and their passes as functions of programs."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import tvm
from tvm import relax

from relascope.core.errors import EngineError
from relascope.passes.pipeline import TvmPipelines
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.tvm_calls import run
from relascope.passes.tvm_pipelines import maker_of, names_in, through

_OPTIONAL = """
    AnnotateTIROpPattern FoldConstant FuseOps FuseTIR RewriteDataflowReshape StaticPlanBlockMemory
    RewriteCUDAGraph KillAfterLastUse
"""
OPTIONAL = frozenset(_OPTIONAL.split())
"""Steps of TVM's pipelines that a build does not need: they make the module faster or smaller."""

_ALONE = """
    Normalize NormalizeGlobalVar MergeCompositeFunctions RunCodegen AllocateWorkspace LazyGetInput
    LazySetOutput LazyTransformParams LiftTransformParams BundleModelParams VMBuiltinLower
"""
_SPECIAL = frozenset(_ALONE.split())
"""Passes that change how a module is called, hand parts of it to libraries, or do nothing alone."""

PLACES = (relax.transform, relax.backend)


def pipelines(target: str) -> TvmPipelines:
    """The pipelines "zero" and "default", and "target", the default one of a target."""
    steps, suffix = _steps(target), "" if target == "llvm" else f"(target={target})"
    known = _SPECIAL.union(*steps.values())
    found = (n for n in dir(relax.transform) if n[:1].isupper() and n not in known)
    return TvmPipelines(
        {name: "|".join(f"{n}{suffix}" for n in names) for name, names in steps.items()},
        tuple(n for n in found if not n.startswith("MetaSchedule") and maker_of(n, PLACES)),
        tuple(sorted(OPTIONAL)),
    )


@cache
def _steps(target: str) -> dict[str, tuple[str, ...]]:
    kind = tvm.target.Target(target)
    made = {name: relax.get_pipeline(name) for name in ("zero", "default")}
    made["target"] = relax.get_default_pipeline(kind)
    empty = tvm.IRModule()
    with kind:
        return {n: tuple(names_in(partial(p, empty))) for n, p in made.items()}


def rest(target: Any, done: tuple[str, ...]) -> Any:
    """The rest of a target's pipeline until a module is code, as one pass, without passes that ran
    already (`done`) and other `OPTIONAL` ones."""
    out = OPTIONAL.union(done)

    @tvm.transform.module_pass(opt_level=0, name="relascope.rest")
    def run_rest(mod: Any, context: Any) -> Any:
        with target, through(lambda name: name not in out):
            return relax.get_default_pipeline(target)(mod)

    return run_rest


def __getattr__(name: str) -> Callable[..., RelaxProgram]:
    """A pass of TVM's as a function from program to program."""
    if not name[:1].isupper():
        raise AttributeError(name)
    return partial(_applied, name)


def _applied(name: str, program: RelaxProgram, target: str = "llvm") -> RelaxProgram:
    kind = tvm.target.Target(target)
    if (make := maker_of(name, PLACES)) is not None:
        mod = run(program.mod, make, target=target)
    elif name in _steps(target)["target"]:
        with kind, through(lambda one: one == name):
            mod = relax.get_default_pipeline(kind)(program.mod)
    else:
        message = f"TVM {tvm.__version__} has no Relax pass {name} that needs no arguments."
        hint = "`relascope passes` lists the passes of TVM's pipelines."
        raise EngineError("usage", message, name, hint)
    return replace(program, mod=mod, tvm_passes=(*program.tvm_passes, name))
