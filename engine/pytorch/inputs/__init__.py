"""The inputs of a model."""
