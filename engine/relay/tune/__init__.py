"""Measuring schedules of Relay's kernels."""
