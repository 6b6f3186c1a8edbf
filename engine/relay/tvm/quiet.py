"""TVM's own messages, kept from a person's terminal while it builds."""

from functools import partial
from unittest.mock import patch

from tvm import autotvm  # isort: skip

quiet = partial(patch.object, autotvm.GLOBAL_SCOPE, "silent", True)
"""Keeps AutoTVM from saying that it has no record of what is only being asked for."""
