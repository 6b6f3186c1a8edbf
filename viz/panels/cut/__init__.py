"""Tab "Gradient & cut"."""
