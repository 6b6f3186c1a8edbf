"""What compiled code is timed against beside eager."""
