"""A session that builds a function of either engine, and says whether that was built before."""

import os
from importlib import import_module
from pathlib import Path

import torch

from relascope.engine.building.options import BuildOptions, Function, both
from relascope.engine.building.threads import set_threads
from relascope.engine.kept_builds import SHELF


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
    from relascope.engine.relay.tvm.boot import boot
    from relascope.passes.relay.ir.program import RelayProgram

    boot()
    import tvm
    from tvm import relay

    x = relay.var("x", shape=(1, 4, 16, 16))
    about = {"padding": (1, 1), "channels": 4, "kernel_size": (3, 3)}
    made = relay.nn.conv2d(x, relay.const(weight.numpy()), **about)
    left, right = (relay.reshape(m, (4, 16, 16)) for m in (made, x))
    made = relay.exp(relay.nn.batch_matmul(left, right))
    mod = tvm.IRModule.from_expr(relay.Function([x], made))
    return RelayProgram(relay.transform.InferType()(mod), {}, ("x",), 1)


class KeptSession:
    def run(self, ir, scale=1.0, keep=True, plain=False, opt_level=3, threads=2, *, progress):
        """The result's bytes, and how many builds were found on the disk until now."""
        building = f"relascope.engine.{ir}.building"
        runtime, targets, libraries = (
            import_module(f"{building}.{name}") for name in ("runtime", "targets", "libraries")
        )
        weight = scale * torch.linspace(-0.1, 0.1, 144).reshape(4, 4, 3, 3)
        program = {"relax": relax_program, "relay": relay_program}[ir](weight)
        target = "llvm" if plain else targets.targets()[0].name
        set_threads(threads)
        SHELF.name = SHELF.name if keep else ""
        built = runtime.build(program, BuildOptions(target, opt_level))
        (result,) = built.run({"x": torch.linspace(-1, 1, 1024).reshape(1, 4, 16, 16)})
        source = libraries.library(Function(program, "main", None, {}), "forward", target).llvm[0]
        return result.numpy().tobytes(), SHELF.taken, "define" in source

    def pair(self, ir, processors, dies=False, *, progress):
        """Two results' bytes, and PyTorch's threads in each build that this process made."""
        building = f"relascope.engine.{ir}.building"
        runtime, targets = (import_module(f"{building}.{n}") for n in ("runtime", "targets"))
        makes = {"relax": relax_program, "relay": relay_program}[ir]
        programs = [makes(s * torch.linspace(-0.1, 0.1, 144).reshape(4, 4, 3, 3)) for s in (1, 2)]
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
