"""Searching for a fault: the pass, then the piece of the program. Both ask a judge."""
