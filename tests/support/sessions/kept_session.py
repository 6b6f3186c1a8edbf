"""A session that builds a function of either engine, and says whether that was built before."""

import os
import sys
from importlib import import_module
from pathlib import Path

import torch

from relascope.engine.building.options import BuildOptions, Function, both
from relascope.engine.building.threads import set_threads
from relascope.engine.kept_builds import SHELF

IR = sys.argv[sys.argv.index("--ir") + 1]
# Before the engine's processes are forked, so that it takes none of them time.
runtime, targets, libraries = (
    import_module(f"relascope.engine.{IR}.building.{name}")
    for name in ("runtime", "targets", "libraries")
)


def relax_program(weight):
    from tvm import relax

    from relascope.passes.relax.ir.program import RelaxProgram

    x = relax.Var("x", relax.TensorType((1, 4, 16, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(relax.op.nn.conv2d(x, relax.const(weight.numpy()), padding=(1, 1)))
            made = builder.emit_output(relax.op.exp(relax.op.matmul(made, x)))
        builder.emit_func_output(made)
    return RelaxProgram(builder.get(), {}, ("x",), 1)


def relay_program(weight):
    import tvm
    from tvm import relay

    from relascope.passes.relay.ir.program import RelayProgram

    x = relay.var("x", shape=(1, 4, 16, 16))
    about = {"padding": (1, 1), "channels": 4, "kernel_size": (3, 3)}
    made = relay.nn.conv2d(x, relay.const(weight.numpy()), **about)
    left, right = (relay.reshape(m, (4, 16, 16)) for m in (made, x))
    made = relay.exp(relay.nn.batch_matmul(left, right))
    mod = tvm.IRModule.from_expr(relay.Function([x], made))
    return RelayProgram(relay.transform.InferType()(mod), {}, ("x",), 1)


def program_of(scale):
    weight = scale * torch.linspace(-0.1, 0.1, 144).reshape(4, 4, 3, 3)
    return {"relax": relax_program, "relay": relay_program}[IR](weight)


class KeptSession:
    def run(self, scale=1.0, keep=True, plain=False, opt_level=3, threads=2, *, progress):
        """The result's bytes, and how many builds were found on the disk until now."""
        program = program_of(scale)
        target = "llvm" if plain else targets.targets()[0].name
        set_threads(threads)
        SHELF.name = SHELF.name if keep else ""
        built = runtime.build(program, BuildOptions(target, opt_level))
        (result,) = built.run({"x": torch.linspace(-1, 1, 1024).reshape(1, 4, 16, 16)})
        return result.numpy().tobytes(), SHELF.taken

    def source(self, *, progress):
        """The text of what `run` builds, whether that is kept or not."""
        function = Function(program_of(1), "main", None, {})
        return libraries.library(function, "forward", targets.targets()[0].name).llvm[0]

    def pair(self, processors, dies=False, *, progress):
        """Two results' bytes, and PyTorch's threads in each build that this process made."""
        programs = [program_of(scale) for scale in (1, 2)]
        options, here, made = BuildOptions(targets.targets()[0].name), os.getpid(), []
        os.sched_getaffinity, make = (lambda _: range(processors)), runtime._builder._make

        def counted(*given):
            if dies and os.getpid() != here:
                os.abort()
            made.append(torch.get_num_threads())
            return make(*given)

        set_threads(2)
        runtime._builder._make = counted
        built = both(*(lambda p=p: runtime.build(p, options) for p in programs))
        x = torch.linspace(-1, 1, 1024).reshape(1, 4, 16, 16)
        return [b.run({"x": x})[0].numpy().tobytes() for b in built], made

    def writes(self, folder, *, progress):
        try:
            Path(folder, "other").write_bytes(b"")
        except OSError:
            return False
        return True
