"""From a Relay program to a function that runs."""
