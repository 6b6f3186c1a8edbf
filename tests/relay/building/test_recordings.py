"""Recordings of Relay's compiles."""

import pytest

pytest.register_assert_rewrite("recordings")

from recordings import *  # noqa: F403
