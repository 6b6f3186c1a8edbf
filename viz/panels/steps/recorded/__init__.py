"""Tab "Passes" of a recording."""
