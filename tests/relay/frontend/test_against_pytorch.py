"""Relay against PyTorch: tables of operators, ONNX node tests, drawn modules, writes, parts."""

import pytest

pytest.register_assert_rewrite("onnx_node_tests", "operators_table", "random_modules")

from cutting_out import agrees, check_import, small_bert, whole_bert
from draws import ENDINGS, as_with_pytorchs_draws
from onnx_node_tests import *  # noqa: F403
from operators_table import *  # noqa: F403
from random_modules import *  # noqa: F403
from writes import as_in_pytorch, cases, refused_where_a_copy_is_possible

WHOLE = pytest.param(whole_bert, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(("function", "ending"), cases(every=False))
def test_a_write_into_a_part_is_as_in_pytorch(function, ending, tmp_path):
    as_in_pytorch("relay", function, ending, tmp_path)


def test_a_write_through_what_may_be_a_copy_is_refused(tmp_path):
    refused_where_a_copy_is_possible("relay", tmp_path)


@pytest.mark.parametrize("whole", [small_bert, WHOLE])
def test_a_submodules_check_is_that_of_the_module_cut_out_by_hand(whole):
    agrees("relay", whole())


def test_what_an_import_did_is_listed_with_its_nodes():
    check_import("relay")


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_a_module_draws_is_an_input_that_pytorch_fills(ending, tmp_path):
    as_with_pytorchs_draws("relay", ending, tmp_path)
