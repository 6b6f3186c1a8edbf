"""The Relax engine, with batches so small that a run of few trials has several."""

from relascope.engine.relax.session import RelaxSession
from relascope.engine.relax.tune import tuning

tuning.BATCH, tuning.MOST_BUILDERS = 2, 1


class SmallBatches(RelaxSession):
    """See the module."""
