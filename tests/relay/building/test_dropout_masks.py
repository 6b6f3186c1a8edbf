"""Dropout masks that a kernel draws."""

from dropout_masks import *  # noqa: F403
