"""What the lectures write by hand, run beside PyTorch."""

import runpy

import pytest
import torch

from limits import close, rounding
from place import ROOT
from relascope.engine.relax.faults import replay

LECTURES = ROOT / "docs" / "lectures"


def test_the_translation_by_hand_computes_what_pytorch_does_or_refuses():
    lecture = runpy.run_path(str(LECTURES / "frameworks.py"))
    module, inputs = lecture["model"]()
    mod = lecture["translate"](module, inputs)
    given = dict(
        zip((p.name for p in mod["main"].params), (*inputs, *module.parameters()), strict=True)
    )
    run = replay.runner(mod, {n: t.detach().numpy() for n, t in given.items()}, "llvm", False)
    run()
    (found,), wanted = run.results(), module(*inputs).detach()
    assert wanted.abs().max() > 0.1
    torch.testing.assert_close(torch.from_numpy(found), wanted, **close(rounding("float32", 32)))
    translate = runpy.run_path(str(LECTURES / "frameworks.py"))["translate"]
    with pytest.raises(NotImplementedError, match="no rule for"):
        translate(torch.nn.Sequential(torch.nn.Tanh()), (torch.ones(2, 3),))
