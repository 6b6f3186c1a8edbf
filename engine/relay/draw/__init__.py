"""Relay programs as graphs and as text."""
