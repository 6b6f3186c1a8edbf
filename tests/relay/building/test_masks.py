"""Dropout masks that a kernel draws."""

from twisting import *  # noqa: F403
