"""The Relay engine, on a TVM that still has Relay. See `engine.relay.boot` for how it is found."""
