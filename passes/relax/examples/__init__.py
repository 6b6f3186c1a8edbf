"""A small program for each Relax pass, on which it is shown and tested.

To add one, write a function of the dtype in one of the files here and put it into that file's
`EXAMPLES` under the pass's name; `make docs` writes the section's block.
"""

from __future__ import annotations

from collections.abc import Mapping

from passes.example import Make
from passes.relax.examples.inference import EXAMPLES as INFERENCE

EXAMPLES: Mapping[str, Make] = {**INFERENCE}
