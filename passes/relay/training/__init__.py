"""The gradient and its passes, and the split into forward and backward."""
