"""What passes over Relax are made with."""
