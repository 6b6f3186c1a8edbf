"""The forward and the backward program of Relax's joint programs."""

import pytest

pytest.register_assert_rewrite("splitting")

from splitting import *  # noqa: F403
