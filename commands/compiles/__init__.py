"""Commands for the person's own compiles: to record and to inspect them."""
