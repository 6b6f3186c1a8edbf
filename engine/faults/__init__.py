"""A fault, narrowed to a few nodes, and the report of it that runs by itself."""
