"""On a program's PYTHONPATH, this folder makes it record from its start."""
