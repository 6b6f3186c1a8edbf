"""Tab "Passes"."""
