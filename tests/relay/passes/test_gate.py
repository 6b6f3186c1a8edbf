"""A gate names what was planted in compiles of Relay's."""

from planting import *  # noqa: F403
