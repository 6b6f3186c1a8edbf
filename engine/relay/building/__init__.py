"""From a Relay program to a function that runs. An import of it boots the TVM with Relay."""

from relascope.engine.relay.tvm.boot import boot

boot()
