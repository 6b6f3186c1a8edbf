"""Modules that are no samples, and what is left of them in files: for tests."""

import torch
from torch import nn


class Fn(nn.Module):
    """A function with parameters of given shapes as a module; its inputs are x0, x1, …"""

    def __init__(self, function, *sizes):
        super().__init__()
        self.function = function
        torch.manual_seed(1)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(s)) for s in sizes)

    def forward(self, *inputs):
        return self.function(*inputs, *self.weights)


class Parts(nn.Module):
    """A function of the module itself and of its inputs, with submodules, parameters and buffers by
    their names."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if type(part) is torch.Tensor:
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs):
        return self.function(self, *inputs)


class Block(nn.Module):
    """A residual block with a buffer that its forward reads."""

    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.2)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width))

    def forward(self, x):
        return x + self.drop(self.norm(torch.relu(self.fc(x)))) * self.scale


class Net(nn.Module):
    """Blocks in a list, a tied weight, a parameter that nothing reads, nested outputs."""

    def __init__(self, width=8):
        super().__init__()
        self.unused = nn.Parameter(torch.ones(2))
        self.blocks = nn.ModuleList([Block(width), Block(width)])
        self.head = nn.Linear(width, width)
        self.head.weight = self.blocks[0].fc.weight

    def forward(self, x, shift):
        for block in self.blocks:
            x = block(x)
        return self.head(x), (x + shift,)


def net(training=False):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net().train(training), (torch.randn(3, 8), torch.randn(3, 8))


def save(module, inputs, path, **options):
    """Write a module as a program (`.pt2`) or a trace."""
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(module, inputs, **options), path)
    else:
        torch.jit.trace(module, inputs, check_trace=False, **options).save(str(path))
    return path


def forget_inputs(path):
    """Take the recorded inputs out of a saved trace, as files of other makers have none."""
    import zipfile

    bare = path.with_name(f"bare_{path.name}")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(bare, "w") as new:
        for entry in old.infolist():
            if "traced_inputs" not in entry.filename:
                new.writestr(entry, old.read(entry.filename))
    return bare
