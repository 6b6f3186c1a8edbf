"""PyTorch's table of operators, through Relax."""

import pytest

pytest.register_assert_rewrite("operators_table")

from operators_table import *  # noqa: F403
