"""Passes on the way to the gradient, and the split."""
