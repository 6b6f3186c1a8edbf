"""Tests in this folder run inside the Relax TVM: one process cannot hold two TVMs."""

import sys

if any("bitblas" in str(getattr(m, "__file__", "")) for n, m in sys.modules.items() if n == "tvm"):
    raise RuntimeError("The Relay TVM is loaded here: run pytest tests/relax in a process alone.")
