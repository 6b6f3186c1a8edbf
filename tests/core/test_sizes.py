"""Open sizes, as types write them."""

import pytest

from relascope.core.sizes import size_of, sizes_in


def test_a_size_is_computed_from_those_that_are_known():
    known = {"n": 5, "m1": 3}
    for text, size in {"n": 5, "2 * n + 1": 11, "(n - m1) // 2": 1, "n % m1": 2, "7": 7}.items():
        assert size_of(text, known) == size
    assert size_of("T.max(n, 7) - T.min(n, m1)", known) == 4
    assert list(sizes_in("T.max(2 * n, 4) + m1 // n")) == ["n", "m1"]


@pytest.mark.parametrize("text", ["?", "k", "n + k", "n // 0", "n.real", "f(n)", "n ** n", "n; n"])
def test_what_is_no_arithmetic_of_known_sizes_is_no_size(text):
    with pytest.raises(ValueError, match=r"is not a size|cannot be computed from"):
        size_of(text, {"n": 5})
