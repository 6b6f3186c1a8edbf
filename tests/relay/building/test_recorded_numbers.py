"""The numbers of recordings of Relay's compiles."""

import pytest

pytestmark = pytest.mark.exhaustive  # Relax's have the subject, too

from numbers_of_recordings import *  # noqa: F403
