"""PyTorch's table of operators, through Relay."""

import pytest

pytest.register_assert_rewrite("operators_table")

from operators_table import *  # noqa: F403
