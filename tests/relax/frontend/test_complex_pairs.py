"""Complex tensors as pairs, and Fourier transforms, through Relax."""

import pytest

pytest.register_assert_rewrite("complex_pairs")

from complex_pairs import *  # noqa: F403
