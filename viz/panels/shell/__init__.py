"""The base of every tab: the engine's cache, the screen's state, the sidebar, the frame."""
