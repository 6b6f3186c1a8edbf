"""What a gate says: differences from a baseline, and culprits among many models."""
