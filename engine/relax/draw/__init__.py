"""Relax programs as graphs and as text."""
