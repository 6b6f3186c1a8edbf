"""Training in Relax, for tests."""

from gradients import Engine
from relascope.engine.relax.building import runtime
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.frontend.importer import import_model
from relascope.passes.relax.training.split import split

ENGINE = Engine("relax", import_model, to_graph, split, runtime)
imported, passes, joint = ENGINE.imported, ENGINE.passes, ENGINE.joint
split_by, step = ENGINE.split_by, ENGINE.step
