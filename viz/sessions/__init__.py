"""A session as data: what is looked at and what was found, its address, where it is kept."""
