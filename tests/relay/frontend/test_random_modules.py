"""Modules drawn at random, through Relay."""

import pytest

pytest.register_assert_rewrite("random_modules")

from random_modules import *  # noqa: F403
