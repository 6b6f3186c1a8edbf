"""Small modules, imported into Relax and compared with PyTorch."""

import torch
import tvm
from tvm import relax

from answers import quiet
from gradients import imported, to_graph
from limits import FORWARD, rounding
from quick import QUICK
from relascope.engine.building import options
from relascope.engine.building.options import BuildOptions
from relascope.engine.measure.compare import Built, errors_of
from relascope.engine.relax.building.runtime import assemble, make


def main_of(program):
    return options.Function(program, "main", *to_graph(program))


def errors(model, program, target=QUICK):
    built = Built(model, program, assemble(program, None, BuildOptions(target)), None, 0.0)
    found = errors_of(built, quiet)
    of_gradients = {c.dtype for c in found if c.name.startswith("gradient")}
    assert of_gradients == ({model.source.dtype} if program.gradients else set())
    return {c.name: c.max_rel for c in found}


def check(module, *inputs, target=QUICK, length=FORWARD, dtype="float32", **how):
    model, program = imported(module, *inputs, dtype=dtype, **how)
    found = errors(model, program, target)
    assert max(found.values()) <= rounding(dtype, length), found
    return model, program, found


def program(operator, *arguments, **named):
    """A module whose "main" is an operator of arguments of these shapes and dtypes; those without
    a name are x0, x1, …"""
    given = {f"x{i}": kind for i, kind in enumerate(arguments)} | named
    variables = [relax.Var(name, relax.TensorType(*kind)) for name, kind in given.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(operator(*variables))
        builder.emit_func_output(result)
    return builder.get()


def compiled(mod, target):
    main = relax.VirtualMachine(make(mod, BuildOptions(target)), tvm.cpu())["main"]
    return lambda *values: main(*map(tvm.runtime.tensor, values)).numpy()


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))
