"""The constraints pin what the requirements name, and nothing but versions is in them."""

import re

import pytest
from packaging.requirements import Requirement

from place import ROOT

FILES = ("requirements.txt", "requirements-onnxruntime.txt", "requirements-test.txt")


def requirements() -> list[Requirement]:
    lines = [line for name in FILES for line in (ROOT / name).read_text().splitlines()]
    bare = [line.partition("#")[0].strip() for line in lines]
    return [Requirement(line) for line in bare if line and not line.startswith("-r")]


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12"])
def test_constraints_agree_with_the_requirements(version):
    lines = (ROOT / "constraints" / f"python-{version}.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==[a-z0-9.]+", line) for line in lines)
    pins = dict(line.split("==") for line in lines)
    assert len(pins) > 90  # what is brought along, too
    here = [
        r for r in requirements() if not r.marker or r.marker.evaluate({"python_version": version})
    ]
    assert len(here) > 20
    assert {r.name: str(r.specifier) for r in here} == {r.name: f"=={pins[r.name]}" for r in here}
