"""Running an imported program as it is, to compare it with PyTorch."""

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from answers import quiet
from quick import QUICK, link, unchecked
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module
from relascope.engine.relay.frontend.importer import import_model


def imported(module, *inputs, training=False, dtype="float32"):
    names = tuple(f"x{i}" for i in range(len(inputs)))
    source = ModelSource("module", training=training, dtype=dtype)
    model = model_from_module(module.train(training), names, inputs, source, quiet)
    return model, import_model(model, quiet)


def run(model, program):
    """The program's outputs on the model's inputs, built without any optimisation."""
    with unchecked(tvm.transform, "tir.disable_assert"), tvm.transform.PassContext(opt_level=0):
        library = relay.build(program.mod, QUICK, params=dict(program.params))
    link(library.module, tvm.runtime.load_module)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    arguments = dict(zip(program.inputs, (t.numpy() for t in model.inputs), strict=True))
    arguments |= {n: t.numpy() for n, t in draw_masks(program.masks, model.source.seed).items()}
    for name, value in arguments.items():
        executor.set_input(name, value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def error(model, program):
    """The largest difference to PyTorch's outputs, over each output's scale; types must agree."""
    ours, theirs = run(model, program), [t.numpy() for t in model.forward()]
    assert [a.shape for a in ours] == [b.shape for b in theirs]
    assert [a.dtype for a in ours] == [b.dtype for b in theirs]
    return max(
        np.abs(a.astype("float64") - b).max() / max(np.abs(b).max(), 1e-30)
        for a, b in zip(ours, theirs, strict=True)
    )
