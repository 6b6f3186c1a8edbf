"""The passes of `relay.build` at each level, read from the installed TVM, as functions of
programs."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import tvm
from tvm import relay

from relascope.core.errors import EngineError
from relascope.passes.pipeline import TvmPipelines
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import copied
from relascope.passes.relay.ir.span_recovery import with_origins
from relascope.passes.tvm_calls import run
from relascope.passes.tvm_pipelines import maker_of, names_in, through

_LEVELS, _USUAL = range(5), 3
_TYPES = "InferType"  # runs before nearly every pass, which needs it
_BY_LEVEL = frozenset({"FuseOps"})  # passes that do less at a lower level

_PLACES = (relay.transform,)


def pipelines(target: str) -> TvmPipelines:
    """The pipelines "O0" to "O4": the passes of `relay.build` at each level, up to kernels."""
    suffix = "" if target == "llvm" else f"target={target}"

    def text(name: str, level: int) -> str:
        about = [suffix] if suffix else []
        about += [f"level={level}"] if name in _BY_LEVEL and level != _USUAL else []
        return f"{name}({', '.join(about)})" if about else name

    steps = {level: _steps(target, level) for level in _LEVELS}
    return TvmPipelines(
        {f"O{level}": "|".join(text(n, level) for n in names) for level, names in steps.items()},
        left_out=tuple(dict.fromkeys(n for names in steps.values() for n in names)),
    )


@cache
def _steps(target: str, level: int) -> tuple[str, ...]:
    variable = relay.var("x", shape=(1,))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([variable], variable)))
    with tvm.transform.PassContext(opt_level=level):
        names = names_in(lambda: relay.optimize(mod, target))
    return tuple(n for n in names if n != _TYPES)


def __getattr__(name: str) -> Callable[..., RelayProgram]:
    """A pass of TVM's as a function from program to program."""
    if not name.rpartition(".")[2][:1].isupper():
        raise AttributeError(name)
    return partial(_applied, name)


def _applied(
    name: str, program: RelayProgram, target: str = "llvm", level: int = _USUAL
) -> RelayProgram:
    mod: Any = copied(program.mod)  # some passes change their argument
    make = maker_of(name, _PLACES)
    if make is not None and (level == _USUAL or name in _BY_LEVEL):
        given = () if level == _USUAL else (level,)
        mod = relay.transform.InferType()(run(mod, make, *given, target=target))
    elif any(name in _steps(target, one) for one in _LEVELS):
        top = max(_LEVELS) if level == _USUAL else level
        with tvm.transform.PassContext(opt_level=top), through(lambda one: one in (name, _TYPES)):
            mod, _ = relay.optimize(mod, target)
    else:
        message = f"TVM {tvm.__version__} has no Relay pass {name} that needs no arguments."
        hint = "`relascope passes` lists the passes of TVM's pipelines."
        raise EngineError("usage", message, name, hint)
    return replace(with_origins(program, mod), tvm_passes=(*program.tvm_passes, name))
