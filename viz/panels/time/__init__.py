"""Tab "Compile & time"."""
