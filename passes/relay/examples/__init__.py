"""A small program for each Relay pass, on which it is shown and tested.

To add one, write a function of the dtype in one of the files here and put it into that file's
`EXAMPLES` under the pass's name; `make docs` writes the section's block.
"""

from __future__ import annotations

from collections.abc import Mapping

from relascope.passes.catalogue.example import Make
from relascope.passes.relay.examples.functions import EXAMPLES as FUNCTIONS
from relascope.passes.relay.examples.inference import EXAMPLES as INFERENCE
from relascope.passes.relay.examples.parallel import EXAMPLES as PARALLEL
from relascope.passes.relay.examples.quantized import EXAMPLES as QUANTIZED
from relascope.passes.relay.examples.rewrites import EXAMPLES as REWRITES
from relascope.passes.relay.examples.scales import EXAMPLES as SCALES
from relascope.passes.relay.examples.training import EXAMPLES as TRAINING

EXAMPLES: Mapping[str, Make] = {
    **INFERENCE,
    **SCALES,
    **PARALLEL,
    **REWRITES,
    **QUANTIZED,
    **FUNCTIONS,
    **TRAINING,
}
