"""torch.compile as a contender: it runs what eager runs, and says why where it cannot."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from answers import quiet
from limits import ELEMENTWISE
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import BASELINES
from relascope.engine.pytorch.baselines import compile as compiled
from relascope.engine.pytorch.baselines.compile import CannotCompile, error_of, first_run
from relascope.engine.pytorch.model import model_from_module
from traces import Parts


def model_of(module, training=False, dtype="float32"):
    torch.manual_seed(0)
    source = ModelSource("module", training=training, dtype=dtype)
    module = module.to(getattr(torch, dtype)).train(training)
    x = torch.randn(4, 8, dtype=getattr(torch, dtype))
    return model_from_module(module, ("x",), (x,), source, quiet)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Compile without a C++ compiler: what is tested is ours, not Inductor."""
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda m, **told: whole(m, backend="aot_eager"))


@pytest.mark.parametrize("name", BASELINES)
def test_it_computes_what_eager_does(name):
    model = model_of(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)))
    module = compiled.compiled(model, name)
    first_run(model.eager(False, module))
    assert error_of(model, module) < ELEMENTWISE
    wrong = model_of(nn.Linear(8, 2))
    assert error_of(wrong, lambda x: model.module(x)) > 1e-3


def filtered(m, x, z):
    """A complex input, parameter, buffer and output."""
    spectrum = torch.fft.rfft(x) * m.weight + z * m.shift
    return spectrum, torch.fft.irfft(spectrum, n=8)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", BASELINES)
def test_complex_tensors_are_pairs_for_every_contender(name, training):
    torch.manual_seed(0)
    weight, shift, z = (torch.randn(*s, 5, dtype=torch.complex64) for s in ((), (), (4,)))
    module = Parts(filtered, weight=nn.Parameter(weight), shift=shift).train(training)
    source, inputs = ModelSource("module", training=training), (torch.randn(4, 8), z)
    model = model_from_module(module, ("x", "z"), inputs, source, quiet)
    if training and name not in compiled._TOLD:
        with pytest.raises(CannotCompile, match="no gradient"):
            compiled.compiled(model, name)
        return
    module = compiled.compiled(model, name)
    first_run(model.eager(training, module))
    if training:
        pairs = zip(model.eager(True)(), model.eager(True, module)(), strict=True)
        assert all(torch.allclose(a, b, rtol=0, atol=10 * ELEMENTWISE) for a, b in pairs)
        return
    assert error_of(model, module) < 10 * ELEMENTWISE
    model.parameters["weight"].data.neg_()
    assert (error_of(model, module) > 1e-3) == (name not in compiled._TOLD)  # it has its own copy


def test_what_cannot_be_compiled_is_told_in_words():
    model = model_of(nn.Linear(8, 2))
    model.module = torch.jit.trace(model.module, model.inputs)
    with pytest.raises(CannotCompile, match="TorchScript"):
        compiled.compiled(model, "torch.compile")

    def fail():
        raise RuntimeError("no compiler was found\nand more")

    with pytest.raises(CannotCompile, match=r"^no compiler was found$"):
        first_run(fail)


def test_onnx_runtime_keeps_no_files_for_telemetry(tmp_path):
    code = "from relascope.engine.pytorch.baselines.onnx_runtime import *; assert is_installed()"
    env = {**os.environ, "HOME": str(tmp_path)}
    env.pop("XDG_CACHE_HOME", None)
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert list(tmp_path.iterdir()) == []
