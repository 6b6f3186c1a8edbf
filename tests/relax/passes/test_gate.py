"""A gate names what was planted in compiles of Relax's."""

import pytest

pytest.register_assert_rewrite("planting")

from planting import *  # noqa: F403
