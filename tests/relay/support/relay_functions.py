"""Small Relay functions, compiled."""

import tvm
from tvm import relay

from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.relay.building.runtime import build
from relascope.engine.relay.building.targets import BLAS
from relascope.passes.relay.ir.program import RelayProgram


def compiled(body, target="llvm", workspace=None, **options):
    variables = sorted(relay.analysis.free_vars(body), key=lambda v: v.name_hint)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(variables, body)))
    names = tuple(v.name_hint for v in variables)
    program = RelayProgram(mod, {}, names, 1)
    return build(program, BuildOptions(target, **options), workspace=workspace)


def var(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


OURS = f"llvm {BLAS} {SCHEDULES}"


def constant(tensor):
    return relay.const(tensor.numpy())
