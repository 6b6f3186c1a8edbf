"""The Relax engine, with batches so small that a run of few trials has several."""

from engine.relax import search
from engine.relax.session import RelaxSession

search.BATCH = 2


class SmallBatches(RelaxSession):
    """See the module."""
