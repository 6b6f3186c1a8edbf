"""Values at the edges of what operators take, through Relax."""

import pytest

pytest.register_assert_rewrite("edge_values")

from edge_values import *  # noqa: F403
