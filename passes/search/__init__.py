"""Searches for a faulty pass, then for a small piece of the program; both ask a judge."""
