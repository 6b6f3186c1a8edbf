"""The passes of each IR and their default pipelines, as plain data."""
