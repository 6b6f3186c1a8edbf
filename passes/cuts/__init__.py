"""Capture strategies, and the code that they share."""
