"""PyTorch's table of operators, through Relax."""

import pytest

pytest.register_assert_rewrite("operators_table")

from operators_table import *  # noqa: F403

# The command is the same for both engines: Relay's tests run it.
pytest.mark.exhaustive(test_the_command_keeps_and_prints_what_it_finds)  # noqa: F405
