"""A small program for each Relax pass, on which it is shown and tested, by the pass's name."""

from relascope.passes.catalogue.example import by_name
from relascope.passes.relax.examples import inference, rewrites, training
from relascope.passes.relax.examples.building import Tensors

EXAMPLES = by_name(Tensors, inference, rewrites, training)
