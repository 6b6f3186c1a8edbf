"""Errors, times, memory and peaks of what was built."""
