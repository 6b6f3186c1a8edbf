"""Exports: a file that shows a result without relascope, and files for other tools."""
