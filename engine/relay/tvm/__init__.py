"""The TVM that has Relay: found, loaded, kept quiet."""
