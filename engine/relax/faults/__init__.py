"""Pieces of Relax programs, and running them again from a report."""
