"""The model as PyTorch runs it: loaded, traced, compiled, and asked what it computes."""
