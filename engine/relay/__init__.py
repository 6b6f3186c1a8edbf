"""The Relay engine, on a TVM that still has Relay. `engine.relay.tvm` finds it."""
