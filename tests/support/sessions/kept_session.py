"""A session that builds a function of either engine, and says whether that was built before."""

import os
import sys
from importlib import import_module
from pathlib import Path

import torch

from relascope.engine.building.options import UNDER_WAY, BuildOptions, Function, both
from relascope.engine.building.threads import set_threads
from relascope.engine.kept_builds import SHELF
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module
from relascope.passes.catalogue import info

IR = sys.argv[sys.argv.index("--ir") + 1]
# Before the engine's processes are forked, so that it takes none of them time.
runtime, targets, libraries, importer = (
    import_module(f"relascope.engine.{IR}.{name}")
    for name in ("building.runtime", "building.targets", "building.libraries", "frontend.importer")
)
X = torch.linspace(-1, 1, 1024).reshape(1, 4, 16, 16)


class Net(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.conv.weight.data = scale * torch.linspace(-0.1, 0.1, 144).reshape(4, 4, 3, 3)

    def forward(self, x):
        return (self.conv(x) @ x).exp()


def program_of(scale):
    """With its weight as a constant."""
    model = model_from_module(Net(scale), ("x",), (X,), ModelSource("own"), silent)
    return info(IR, "bind").load()(importer.import_model(model, silent))


class KeptSession:
    def run(self, scale=1.0, keep=True, plain=False, opt_level=3, threads=2, *, progress):
        """The result's bytes, and how many builds were found on the disk until now."""
        program = program_of(scale)
        target = "llvm" if plain else targets.targets()[0].name
        set_threads(threads)
        SHELF.name = SHELF.name if keep else ""
        built = runtime.build(program, BuildOptions(target, opt_level))
        (result,) = built.run({"x": X})
        return result.numpy().tobytes(), SHELF.taken

    def source(self, *, progress):
        """The text of what `run` builds, whether that is kept or not."""
        function = Function(program_of(1), "main", None, {})
        return libraries.library(function, "forward", targets.targets()[0].name).llvm[0]

    def pair(self, processors, dies=False, *, progress):
        """Two results' bytes, PyTorch's threads in each build made here, and words on both."""
        programs = [program_of(scale) for scale in (1, 2)]
        options, here, made, words = BuildOptions(targets.targets()[0].name), os.getpid(), [], []
        os.sched_getaffinity, make = (lambda _: range(processors)), runtime._builder._make

        def counted(*given):
            if dies and os.getpid() != here:
                os.abort()
            made.append(torch.get_num_threads())
            return make(*given)

        set_threads(2)
        UNDER_WAY.progress = lambda _, text: words.append(text)
        runtime._builder._make = counted
        built = both(*(lambda p=p: runtime.build(p, options) for p in programs))
        return [b.run({"x": X})[0].numpy().tobytes() for b in built], made, words

    def writes(self, folder, *, progress):
        try:
            Path(folder, "other").write_bytes(b"")
        except OSError:
            return False
        return True
