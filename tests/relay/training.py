"""Training in Relay, for tests."""

from gradients import Engine

from engine.relay import runtime
from engine.relay.frontend import import_model
from engine.relay.to_graph import to_graph
from passes.relay.split import split

RELAY = Engine("relay", import_model, to_graph, split, runtime)
passes, joint, halves, step = RELAY.passes, RELAY.joint, RELAY.halves, RELAY.step
