"""Files that are opened."""
