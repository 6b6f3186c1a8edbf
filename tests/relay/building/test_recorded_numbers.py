"""The numbers of recordings of Relay's compiles."""

import pytest

pytestmark = pytest.mark.exhaustive  # Relax's have the subject, too
pytest.register_assert_rewrite("numbers_of_recordings")

from numbers_of_recordings import *  # noqa: F403
