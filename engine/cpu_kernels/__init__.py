"""Kernels and schedules of our own for the CPU, the same in both engines. They know no TVM."""
