"""Relax against PyTorch: operators, ONNX, drawn modules, writes, parts and number formats."""

import pytest

from cutting_out import *  # noqa: F403
from number_formats import *  # noqa: F403
from onnx_node_tests import *  # noqa: F403
from operators_table import *  # noqa: F403
from random_modules import *  # noqa: F403
from writes_and_draws import *  # noqa: F403

pytestmark = pytest.mark.usefixtures("unfolded")
