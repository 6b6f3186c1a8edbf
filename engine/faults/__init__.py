"""A fault, narrowed to a few nodes, and a report on it that runs on its own."""
