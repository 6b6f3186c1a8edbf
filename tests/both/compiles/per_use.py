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
from traces import Parts

runtime = import_module(f"relascope.engine.{ENGINE}.building.runtime")
split = import_module(f"relascope.passes.{ENGINE}.training.split").split


def unet(m, images):
    """Of two levels, with a wide skip."""
    skipped = m.down(images)
    x = m.inner(nn.functional.max_pool2d(skipped, 2))
    x = nn.functional.interpolate(x, scale_factor=2.0)
    return m.up(torch.cat([x, skipped], 1)).tanh()


def residual(m, x):
    """Wide layers whose results are added to what they read."""
    for layer in m.layers:
        x = x + layer(x)
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


def check_bits(model, program, target):
    """Results computed per use are those computed once, but where there is NaN."""
    count, found = steps(model, program, BuildOptions(target, opt_level=1))
    plain, more = ([*outputs, *gradients.values()] for outputs, gradients, *_ in found)
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(plain, more, strict=True))
    return count, found[1]


def check_random(module, target, check=check_bits):
    """The same, or another check, of a module drawn at random, if it can be differentiated."""
    try:
        model, program = trained(module, *module.inputs(torch.float32, False))
        whole = joint(program)
    except EngineError:
        return
    if whole.gradients:
        check(model, whole, target)


def check_layers(target):
    """The same of layers with residuals."""
    layers = [nn.Sequential(nn.Linear(8, 64), nn.Sigmoid(), nn.Linear(64, 8)) for _ in range(3)]
    model, program = trained(Parts(residual, layers=nn.ModuleList(layers)), torch.randn(64, 8))
    count, (outputs, gradients, *_) = check_bits(model, joint(program), target)
    assert count
    compare(model, outputs[: len(model.forward())], gradients)


def peaks(target):
    """Of a U-Net, measured and estimated, computed once and per use."""
    down, inner, up = (nn.Conv2d(n, 16, 3, padding=1) for n in (3, 16, 32))
    parts = {"down": nn.Sequential(down, nn.GELU()), "inner": nn.Sequential(inner, nn.GELU())}
    parts["up"] = nn.Sequential(up, nn.GELU(), nn.Conv2d(16, 2, 1))
    model, program = trained(Parts(unet, **parts), torch.randn(2, 3, 64, 64))
    return [one[2:] for one in steps(model, joint(program), BuildOptions(target))[1]]
