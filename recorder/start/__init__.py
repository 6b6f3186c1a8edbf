"""Put on a program's PYTHONPATH, this folder has it recorded from its start."""
