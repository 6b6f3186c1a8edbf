"""Errors, times, memory and peaks of builds."""
