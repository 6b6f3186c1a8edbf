"""Modules drawn at random, through Relax."""

import pytest

pytest.register_assert_rewrite("random_modules")

from random_modules import *  # noqa: F403
