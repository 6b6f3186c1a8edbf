"""The commands of a gate: what a compile is held to, and many models at once."""
