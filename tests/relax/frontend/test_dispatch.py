"""TVM in training code, through Relax."""

import pytest

pytest.register_assert_rewrite("dispatching")

from dispatching import *  # noqa: F403
