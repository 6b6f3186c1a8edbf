"""The commands of a gate: comparisons with earlier compiles, and many models at once."""
