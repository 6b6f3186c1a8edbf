"""A submodule alone in Relay, and what an import did."""

import pytest

from cutting_out import agrees, check_import, small_bert, whole_bert

EXHAUSTIVE = pytest.param(whole_bert, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("whole", [small_bert, EXHAUSTIVE])
def test_its_check_is_that_of_the_module_cut_out_by_hand(whole):
    agrees("relay", whole())


def test_what_an_import_did_is_listed_with_its_nodes():
    check_import("relay")
