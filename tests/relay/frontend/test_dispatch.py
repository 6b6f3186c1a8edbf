"""TVM in training code, through Relay."""

import pytest

pytest.register_assert_rewrite("dispatching")

from dispatching import *  # noqa: F403
