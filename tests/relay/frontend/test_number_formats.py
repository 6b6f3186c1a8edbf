"""Models in 16 bits, through Relay."""

import pytest

pytest.register_assert_rewrite("number_formats")

from number_formats import *  # noqa: F403
