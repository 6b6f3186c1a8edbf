"""Models in 16 bits, through Relax."""

import pytest

pytest.register_assert_rewrite("number_formats")

from number_formats import *  # noqa: F403
