"""Two runs of passes compared."""
