"""Training in Relax, for tests."""

from gradients import Engine

from engine.relax import runtime
from engine.relax.frontend import import_model
from engine.relax.to_graph import to_graph
from passes.relax.split import split

RELAX = Engine("relax", import_model, to_graph, split, runtime)
imported, passes, joint = RELAX.imported, RELAX.passes, RELAX.joint
halves, step = RELAX.halves, RELAX.step
