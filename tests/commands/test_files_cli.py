"""Commands over files that a person has, with a real engine: modules, inputs, sets, names."""

import numpy as np
import pytest
import torch

from command_line import document, run

ENGINE = ("--engine", "relax")


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 3)
        self.last = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())

    def forward(self, x):
        return self.last(self.first(x))


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
    model, x = Pair(), torch.randn(2, 4)
    torch.jit.trace(model, x).save(folder / "pair.pt")
    batch = torch.export.Dim("batch", min=2, max=8)
    torch.export.save(
        torch.export.export(model, (x,), dynamic_shapes=({0: batch},)), folder / "pair.pt2"
    )
    (folder / "own.py").write_text(CODE)
    for name, size in (("a", 2), ("b", 2), ("c", 3)):
        np.save(folder / f"{name}.npy", np.full((size, 4), 0.5, "float32"))
    return folder


def said(*args):
    done = run(*map(str, args), real=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_modules_of_ones_own_code_are_listed_and_opened(files):
    own = f"{files / 'own.py'}:made"
    told = said("modules", own, *ENGINE)
    assert "the whole model" in told and "Linear" in told and "float32[2, 3]" in told
    assert "of" in said("graph", own, "--module", "0", *ENGINE).splitlines()[0]


def test_sizes_that_are_open_are_told_and_pinned(files):
    told = said("inputs", files / "pair.pt2", *ENGINE)
    assert "Sizes that are open; set one with --pin:" in told
    pinned = document("graph", str(files / "pair.pt2"), "--pin", "x.0=5", *ENGINE, real=True)
    assert pinned["nodes"] > 3
    for size, why in ((9, "8"), (1, "2")):
        done = run("graph", str(files / "pair.pt2"), "--pin", f"x.0={size}", *ENGINE, real=True)
        assert done.returncode != 0 and why in done.stderr
    done = run("graph", str(files / "pair.pt2"), "--pin", "x.1=5", *ENGINE, real=True)
    assert done.returncode != 0 and "x.1" in done.stderr


def test_several_sets_of_inputs_are_checked_by_one_program(files):
    few = (*ENGINE, "--dtype", "float32", "--passes", "default")
    asked = ("check", files / "pair.pt", "--input", "x=2x4:float32", *few)
    sets = ("--tensors", files / "a.npy", "--tensors", files / "b.npy")
    told = said(*asked, *sets)
    assert "Every stage agrees with PyTorch: within 1e-05 of the scale in float32, on " in told
    assert "set2" in told
    listed = said("inputs", files / "pair.pt", "--input", "x=2x4:float32", *sets, *ENGINE)
    assert "Sets of saved inputs:" in listed
    plain = ("check", files / "pair.pt", *few, *sets[:2])
    other = run(*map(str, (*plain, "--tensors", files / "c.npy")), real=True)
    assert "in the first set" in other.stdout + other.stderr


def test_models_are_searched_by_name():
    assert "hf:bert" in said("models", "--search", "hf:bert", *ENGINE)
    assert "No model is called so here" in said("models", "--search", "nonesuch", *ENGINE)


def test_engines_say_what_they_run():
    told = said("engines")
    assert "relax: TVM" in told and "runs llvm" in told
