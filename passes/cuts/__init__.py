"""Capture strategies: one a file, and what they share."""
