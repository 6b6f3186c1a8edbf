"""What every tab stands on: the engine's desk, the screen's state, the sidebar, the frame."""
