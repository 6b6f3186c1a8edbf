"""Changes in place of what something else sees, in Relay."""

import pytest

from writes import as_in_pytorch, cases, refused_where_a_copy_is_possible


@pytest.mark.parametrize(("function", "ending"), cases(every=False))
def test_a_write_into_a_part_is_as_in_pytorch(function, ending, tmp_path):
    as_in_pytorch("relay", function, ending, tmp_path)


def test_a_write_through_what_may_be_a_copy_is_refused(tmp_path):
    refused_where_a_copy_is_possible("relay", tmp_path)
