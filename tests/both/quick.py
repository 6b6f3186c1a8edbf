"""A target for tests of what is computed rather than of code: LLVM's optimiser is half a build."""

QUICK = "llvm -opt-level=0"
