"""The Relax engine, with batches so small that a run of few trials has several."""

from engine.relax import measuring, search
from engine.relax.session import RelaxSession

search.BATCH, measuring.MOST_BUILDERS = 2, 1


class SmallBatches(RelaxSession):
    """See the module."""
