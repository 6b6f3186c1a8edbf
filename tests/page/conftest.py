"""The page, for the tests in this folder."""

from page import page

__all__ = ["page"]
