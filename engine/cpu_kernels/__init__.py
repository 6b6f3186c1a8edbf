"""Our kernels and schedules for the CPU, the same in both engines. They import no TVM."""
