"""Folding scales of channels into weights."""
