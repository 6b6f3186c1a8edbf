"""A gate names what was planted in compiles of Relay's."""

import pytest

from planting import *  # noqa: F403

pytest.mark.exhaustive(test_a_planted_regression_is_named)  # noqa: F405 - Relax's are quicker
pytest.mark.exhaustive(test_twice_is_no_difference)  # noqa: F405
