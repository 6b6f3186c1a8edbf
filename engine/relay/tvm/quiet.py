"""TVM's own messages, kept off the terminal while it builds."""

from functools import partial
from unittest.mock import patch

from tvm import autotvm  # isort: skip

quiet = partial(patch.object, autotvm.GLOBAL_SCOPE, "silent", True)
"""Keeps AutoTVM from reporting a missing record when it is only asked for one."""
