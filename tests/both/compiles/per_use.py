"""Steps whose backward computes values more than once, beside those that compute each once."""

from importlib import import_module

import torch
from torch import nn

from gradients import compare, joint, to_graph, trained, values_of
from quick import ENGINE
from relascope.core.errors import EngineError
from relascope.engine.building.options import BuildOptions
from relascope.engine.measure.memory import torch_peak
from relascope.passes.cuts.cut import Joint, cut
from relascope.passes.cuts.lifetimes import Lifetimes
from relascope.passes.cuts.per_use import fitted, rewiring_text

runtime = import_module(f"relascope.engine.{ENGINE}.building.runtime")
split = import_module(f"relascope.passes.{ENGINE}.training.split").split


class UNet(nn.Module):
    """Of two levels, with a wide skip."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GELU())
        self.inner = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.GELU())
        self.up = nn.Sequential(nn.Conv2d(32, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 2, 1))

    def forward(self, images):
        skipped = self.down(images)
        x = self.inner(nn.functional.max_pool2d(skipped, 2))
        x = nn.functional.interpolate(x, scale_factor=2.0)
        return self.up(torch.cat([x, skipped], 1)).tanh()


class Residual(nn.Module):
    """Wide layers whose results are added to what they read."""

    def __init__(self):
        super().__init__()
        self.out = nn.ModuleList(nn.Linear(8, 64) for _ in range(3))
        self.back = nn.ModuleList(nn.Linear(64, 8) for _ in range(3))

    def forward(self, x):
        for out, back in zip(self.out, self.back, strict=True):
            x = x + back(out(x).sigmoid())
        return x.softmax(-1)


def steps(model, program, options):
    """Results of a step that saves nothing that it need not, each value computed once and per use;
    how many are computed more than once; and what each takes at its peak, measured and estimated.
    """
    graph, exprs = to_graph(program)
    ids, values, found = cut(graph, "inputs_only").ids, values_of(model, program), []
    once = Lifetimes(Joint(graph), ids)
    often = fitted(once)
    for lives in once, often:
        parts = split(program, graph, exprs, (*ids, *rewiring_text(lives.rewiring)))
        built = runtime.assemble(program, parts, options)

        def run(built=built):
            outputs, captures = built.forward(values)
            return outputs, built.backward(values, captures)

        with built.counting():
            peak = torch_peak(run, torch.device("cpu"))
        found.append((*run(), peak, lives.peak))
    return sum(n > 1 for n in often.times.values()), found


def same(a, b, roundings):
    """Whether two tensors are equal, but for some roundings of the largest value, or have NaN."""
    if torch.equal(a, b) or a.isnan().any():
        return True
    most = roundings * torch.finfo(a.dtype).eps * a.abs().max() if a.is_floating_point() else 0
    return bool((a - b).abs().max() <= most)


def check_bits(model, program, target, roundings=0):
    """Results computed per use are those computed once, but for some `roundings`."""
    count, found = steps(model, program, BuildOptions(target, opt_level=1))
    plain, more = ([*outputs, *gradients.values()] for outputs, gradients, *_ in found)
    assert all(same(a, b, roundings) for a, b in zip(plain, more, strict=True))
    return count, found[1]


def check_random(module, target, roundings=0):
    """The same of a module drawn at random, if it can be differentiated."""
    try:
        model, program = trained(module, *module.inputs(torch.float32, False))
        whole = joint(program)
    except EngineError:
        return 0
    return check_bits(model, whole, target, roundings)[0] if whole.gradients else 0


def check_layers(target):
    """The same of layers with residuals."""
    model, program = trained(Residual(), torch.randn(64, 8))
    count, (outputs, gradients, *_) = check_bits(model, joint(program), target)
    assert count
    compare(model, outputs[: len(model.forward())], gradients)


def peaks(target):
    """Of a U-Net, measured and estimated, computed once and per use."""
    model, program = trained(UNet(), torch.randn(2, 3, 64, 64))
    return [one[2:] for one in steps(model, joint(program), BuildOptions(target))[1]]
