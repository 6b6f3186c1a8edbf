"""Small Relay functions, as modules and programs and compiled."""

from collections import Counter

import tvm
from tvm import relay

from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.relay.building.runtime import build
from relascope.engine.relay.building.targets import BLAS
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order


def module_of(body, *arguments):
    """A module whose "main" is an expression of these arguments, or of the variables in it."""
    function = relay.Function(list(arguments) or relay.analysis.free_vars(body), body)
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


def program_of(body, *arguments, params=None, **fields):
    """The program of `module_of`; what is neither a parameter nor a gradient of its results is an
    input."""
    mod, params = module_of(body, *arguments), params or {}
    others = {*params, *fields.get("grad_outs", ())}
    names = tuple(p.name_hint for p in mod["main"].params if p.name_hint not in others)
    return RelayProgram(mod, params, names, 1, **fields)


def compiled(body, target="llvm", workspace=None, **options):
    variables = sorted(relay.analysis.free_vars(body), key=lambda v: v.name_hint)
    program = program_of(body, *variables)
    return build(program, BuildOptions(target, **options), workspace=workspace)


def operators(program):
    """How often each operator is called."""
    return Counter(filter(None, map(op_name, post_order(program.main))))


def var(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


OURS = f"llvm {BLAS} {SCHEDULES}"


def constant(tensor):
    return relay.const(tensor.numpy())
