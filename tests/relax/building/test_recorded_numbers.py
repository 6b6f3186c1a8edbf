"""The numbers of recordings of Relax's compiles."""

import pytest

pytest.register_assert_rewrite("numbers_of_recordings")

from numbers_of_recordings import *  # noqa: F403
