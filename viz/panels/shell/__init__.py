"""What every tab stands on: the engine's cache, the screen's state, the sidebar, the frame."""
