"""The version of relascope."""

__version__ = "0.3.0"
