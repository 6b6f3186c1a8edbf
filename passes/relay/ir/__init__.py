"""What passes over Relay are made with."""
