"""Pieces of Relay programs, and running them again from a report."""
