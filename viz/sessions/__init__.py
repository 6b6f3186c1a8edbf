"""A session as data: its screen and results, its address, its file, and the store of sessions."""
