"""The version of relascope."""

__version__ = "0.2.0"
