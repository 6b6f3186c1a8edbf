"""A gate names what was planted in compiles of Relax's."""

from planting import *  # noqa: F403
