"""The linters, one a file."""
