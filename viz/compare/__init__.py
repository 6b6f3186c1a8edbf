"""Compares two graphs of one program."""
