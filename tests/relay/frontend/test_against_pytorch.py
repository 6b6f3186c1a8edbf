"""Relay against PyTorch: operators, ONNX, drawn modules, writes, parts and number formats."""

import pytest

from cutting_out import *  # noqa: F403
from number_formats import *  # noqa: F403
from onnx_node_tests import *  # noqa: F403
from operators_table import *  # noqa: F403
from random_modules import *  # noqa: F403
from writes_and_draws import *  # noqa: F403

# Pairs and 16-bit numbers are composed, writes taken out and submodules cut out before an engine
# imports the program; Relax's are quicker. So are drawn modules.
pytest.mark.exhaustive(test_a_few_modules_are_right_or_refused)  # noqa: F405
pytest.mark.exhaustive(test_a_submodules_check_is_that_of_the_module_cut_out_by_hand)  # noqa: F405
pytest.mark.exhaustive(test_complex_arguments_and_results_are_pairs)  # noqa: F405
pytest.mark.exhaustive(test_a_module_with_complex_numbers_trains_through_a_dispatch)  # noqa: F405
pytest.mark.exhaustive(test_dynamic_int8)  # noqa: F405
pytest.mark.exhaustive(test_gradients_of_transforms)  # noqa: F405
pytest.mark.exhaustive(test_the_command_keeps_and_prints_what_it_finds)  # noqa: F405
pytest.mark.exhaustive(test_transforms_and_what_stands_around_them)  # noqa: F405
pytest.mark.exhaustive(test_values_and_gradients_in_16_bits)  # noqa: F405
pytest.mark.exhaustive(test_what_a_trace_does_not_hold_is_as_in_pytorch)  # noqa: F405
pytest.mark.exhaustive(test_writes_into_parts_are_as_in_pytorch)  # noqa: F405
