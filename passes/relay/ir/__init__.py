"""Code that passes over Relay share."""
