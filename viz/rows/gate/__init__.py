"""Results of the CI gate: differences from a baseline, and culprits among many models."""
