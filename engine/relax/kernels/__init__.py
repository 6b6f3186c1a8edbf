"""Relax's kernels where TVM's own are slow, wrong or missing."""
