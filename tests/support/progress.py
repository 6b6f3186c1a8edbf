"""What tests pass for `progress`."""


def quiet(fraction: float, text: str) -> None:
    """Say nothing; what it is told must be a share and words."""
    assert 0 <= fraction <= 1
    assert isinstance(text, str)
