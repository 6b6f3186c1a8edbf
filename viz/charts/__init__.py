"""Charts as Altair specifications."""
