"""Relax against PyTorch: tables of operators, ONNX node tests, drawn modules, writes, parts."""

import pytest

pytest.register_assert_rewrite("onnx_node_tests", "operators_table", "random_modules")

from cutting_out import agrees, check_import, small_bert, whole_bert
from draws import ENDINGS, as_with_pytorchs_draws
from onnx_node_tests import *  # noqa: F403
from operators_table import *  # noqa: F403
from random_modules import *  # noqa: F403
from writes import as_in_pytorch, cases, refused_where_a_copy_is_possible

WHOLE = pytest.param(whole_bert, marks=pytest.mark.exhaustive)

# The command is the same for both engines: Relay's tests run it.
pytest.mark.exhaustive(test_the_command_keeps_and_prints_what_it_finds)  # noqa: F405


@pytest.mark.parametrize(("function", "ending"), cases(every=True))
def test_a_write_into_a_part_is_as_in_pytorch(function, ending, tmp_path):
    as_in_pytorch("relax", function, ending, tmp_path)


def test_a_write_through_what_may_be_a_copy_is_refused(tmp_path):
    refused_where_a_copy_is_possible("relax", tmp_path)


@pytest.mark.parametrize("whole", [small_bert, WHOLE])
def test_a_submodules_check_is_that_of_the_module_cut_out_by_hand(whole):
    agrees("relax", whole())


def test_what_an_import_did_is_listed_with_its_nodes():
    check_import("relax")


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_a_module_draws_is_an_input_that_pytorch_fills(ending, tmp_path):
    as_with_pytorchs_draws("relax", ending, tmp_path)
