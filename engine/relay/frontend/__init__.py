"""From PyTorch to Relay."""
