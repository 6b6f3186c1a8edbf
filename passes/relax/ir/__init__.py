"""Code that passes over Relax share."""
