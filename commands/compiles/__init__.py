"""Commands for one's own compiles: recorded, and looked at."""
