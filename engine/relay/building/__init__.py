"""From a Relay program to a function that runs; TVM's packages are those of one with Relay."""

from relascope.engine.relay.tvm.boot import boot

boot()
