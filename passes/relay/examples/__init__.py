"""A small program for each Relay pass, on which it is shown and tested, by the pass's name."""

from relascope.passes.catalogue.example import by_name
from relascope.passes.relay.examples import inference, rewrites, training
from relascope.passes.relay.examples.building import Tensors

EXAMPLES = by_name(Tensors, inference, rewrites, training)
