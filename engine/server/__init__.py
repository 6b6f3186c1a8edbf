"""What serves an engine's calls, the same for each IR."""
