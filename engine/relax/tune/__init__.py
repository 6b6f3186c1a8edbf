"""Measuring schedules of Relax's kernels."""
