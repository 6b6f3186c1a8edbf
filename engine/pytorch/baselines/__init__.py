"""Baselines that compiled code is timed against, besides PyTorch eager."""
