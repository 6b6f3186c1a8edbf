"""A small program for each Relax pass, on which it is shown and tested.

To add one, write a function of the dtype in one of the files here and put it into that file's
`EXAMPLES` under the pass's name; `make docs` writes the section's block.
"""

from __future__ import annotations

from collections.abc import Mapping

from relascope.passes.catalogue.example import Make
from relascope.passes.relax.examples.functions import EXAMPLES as FUNCTIONS
from relascope.passes.relax.examples.inference import EXAMPLES as INFERENCE
from relascope.passes.relax.examples.kernels import EXAMPLES as KERNELS
from relascope.passes.relax.examples.rewrites import EXAMPLES as REWRITES
from relascope.passes.relax.examples.scales import EXAMPLES as SCALES
from relascope.passes.relax.examples.training import EXAMPLES as TRAINING

EXAMPLES: Mapping[str, Make] = {
    **INFERENCE,
    **SCALES,
    **REWRITES,
    **FUNCTIONS,
    **TRAINING,
    **KERNELS,
}
