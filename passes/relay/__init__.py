"""Passes over Relay. Importing anything below this package needs a TVM with Relay."""
