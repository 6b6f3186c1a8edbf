"""A small program for each Relax pass, on which it is shown and tested.

To add one, write a function of the pass's name in one of the files here, from the `Tensors` of a
dtype to an `Example`; `make docs` writes the section's block.
"""

from relascope.passes.catalogue.example import by_name
from relascope.passes.relax.examples import inference, rewrites, training
from relascope.passes.relax.examples.building import Tensors

EXAMPLES = by_name(Tensors, inference, rewrites, training)
