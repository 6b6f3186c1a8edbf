"""The forward and the backward program of Relax's joint programs."""

from splitting import *  # noqa: F403
