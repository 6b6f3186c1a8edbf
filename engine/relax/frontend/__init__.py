"""From PyTorch to Relax."""
