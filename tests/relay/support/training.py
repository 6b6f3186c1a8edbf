"""Training in Relay, for tests."""

from gradients import Engine
from relascope.engine.relay.building import runtime
from relascope.engine.relay.draw.to_graph import to_graph
from relascope.engine.relay.frontend.importer import import_model
from relascope.passes.relay.training.split import split

ENGINE = Engine("relay", import_model, to_graph, split, runtime)
imported, passes, joint = ENGINE.imported, ENGINE.passes, ENGINE.joint
split_by, step = ENGINE.split_by, ENGINE.step
