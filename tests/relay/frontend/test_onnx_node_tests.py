"""ONNX's own node tests, through Relay."""

import pytest

pytest.register_assert_rewrite("onnx_node_tests")

from onnx_node_tests import *  # noqa: F403
