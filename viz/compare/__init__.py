"""Two graphs of one program held against each other."""
