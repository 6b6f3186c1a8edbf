"""Commands over files that a person has, with a real engine: modules, inputs, sets, names."""

import numpy as np
import pytest
import torch

from command_line import document, run

ENGINE = ("--engine", "relax")


CODE = """
import torch

def made():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()), (torch.ones(2, 4),)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2), torch.nn.Tanh()
    model, x = torch.nn.Sequential(*layers), torch.randn(2, 4)
    torch.jit.trace(model, x).save(folder / "pair.pt")
    batch = torch.export.Dim("batch", min=2, max=8)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / "pair.pt2")
    (folder / "own.py").write_text(CODE)
    for name, size in (("a", 2), ("b", 2), ("c", 3)):
        np.save(folder / f"{name}.npy", np.full((size, 4), 0.5, "float32"))
    return folder


def said(*args, fails=False):
    """What a command prints; of one that `fails`, also as an error."""
    done = run(*map(str, args), *ENGINE, real=True)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stdout + done.stderr * fails


def test_the_modules_of_ones_own_code_are_listed_and_opened(files):
    own = f"{files / 'own.py'}:made"
    told = said("modules", own)
    assert "the whole model" in told and "Linear" in told and "float32[2, 3]" in told
    assert "of" in said("graph", own, "--module", "0").splitlines()[0]


def test_sizes_that_are_open_are_told_and_pinned(files):
    program = str(files / "pair.pt2")
    assert "Sizes that are open; set one with --pin:" in said("inputs", program)
    assert document("graph", program, "--pin", "input.0=5", *ENGINE, real=True)["nodes"] > 3
    for pin, why in (("input.0=9", "8"), ("input.0=1", "2"), ("input.1=5", "input.1")):
        assert why in said("graph", program, "--pin", pin, fails=True)


def test_several_sets_of_inputs_are_checked_by_one_program(files):
    few, typed = ("--dtype", "float32", "--passes", "default"), ("--input", "input=2x4:float32")
    trace, sets = files / "pair.pt", ("--tensors", files / "a.npy", "--tensors", files / "b.npy")
    told = said("check", trace, *typed, *few, *sets)
    assert "Every stage agrees with PyTorch: within 1e-05 of the scale in float32, on " in told
    assert "set2" in told
    assert "Sets of saved inputs:" in said("inputs", trace, *typed, *sets)
    plain = ("check", trace, *few, *sets[:2], "--tensors", files / "c.npy")
    assert "in the first set" in said(*plain)


def test_models_are_searched_by_name_and_engines_say_what_they_run():
    assert "hf:bert" in said("models", "--search", "hf:bert")
    assert "No model here matches" in said("models", "--search", "nonesuch")
    told = run("engines", real=True).stdout
    assert "relax: TVM" in told and "runs llvm" in told
