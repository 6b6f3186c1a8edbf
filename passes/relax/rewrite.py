"""What passes over Relax share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import relax

from passes.relax.program import RelaxProgram


def with_mod(program: RelaxProgram, mod: Any) -> RelaxProgram:
    """The program with another module, normalised."""
    return replace(program, mod=relax.transform.Normalize()(mod))
